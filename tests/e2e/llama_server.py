#!/usr/bin/env python3
"""llama_server.py - trimtabd beside a llama-server of the same source, over HTTP, with the same models and requests.

By hand, on an otherwise idle machine (some fifteen minutes; the first call of ./bootstrap llama-server builds for as long):

    ./bootstrap build && eval "$(./bootstrap env)"
    tests/e2e/llama_server.py --server "$(./bootstrap llama-server)" --build build --model "$TRIMTAB_TARGET" --draft "$TRIMTAB_DRAFT"

llama-server runs without a draft model, with the draft model and its default options (3 tokens a draft in the pinned version)
and with 1 and 2 tokens a draft; trimtabd runs adaptive. Both use the built-in form of the model's chat template, so that prompts
are the same, and one KV cache for all requests, which is what llama-server does unless told how many. All servers are loaded, and all but the one that is being asked are stopped (SIGSTOP): two engines that compute at
once on few cores slow each other manifold. They take turns in short blocks; a block is the same requests for each, sent by
`trimtab bench traffic --steady`: as many at a time as the load says while the clock runs, as in trimtab bench load. The best setting of llama-server is chosen on odd blocks and compared on even ones, and the other way
round, as trimtab bench load does, with Student's 95 % interval of the log ratio. Exit status 0 when everything was measured, whatever it says.
"""
import argparse
import ctypes
import json
import math
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

TARGETS = "target: 1.2 x best at one request, 1.0 x best and 1.2 x default everywhere"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: a stopped process hears nothing else


class Server:
    def __init__(self, name, command, port, log):
        self.name, self.url = name, f"http://127.0.0.1:{port}"
        self.log = open(log, "w+b")
        # Threads that wait for each other sleep soon instead of spinning, as bootstrap runs trimtabd; the same for both.
        environment = dict(os.environ, GOMP_SPINCOUNT=os.environ.get("GOMP_SPINCOUNT", "1000"))
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=environment,
                                        preexec_fn=die_with_parent)

    def wait_until_ready(self, seconds=300):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(self.url + "/health", timeout=5) as reply:
                    if reply.status == 200:
                        return
            except OSError:
                time.sleep(0.2)
        self.log.seek(0)
        sys.exit(f"llama_server: {self.name} did not start; its log ends:\n{self.log.read().decode(errors='replace')[-2000:]}")

    def check_drafting(self):
        """A llama-server that was given a draft model must use it: without the right option it silently does not."""
        body = json.dumps({"messages": [{"role": "user", "content": "Count to twenty."}], "max_tokens": 24, "temperature": 0})
        asked = urllib.request.Request(self.url + "/v1/chat/completions", body.encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=120) as reply:
            timings = json.load(reply).get("timings", {})
        if ("draft_n" in timings) != (self.name != "no-draft"):
            sys.exit(f"llama_server: {self.name} drafts otherwise than it was told to: {timings}")

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def stop(self):
        self.resume()
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()


def commands(options, folder):
    """Every server's name, command and port."""
    parallel = max(options.concurrency)
    for name in ("no-draft", "default", "n_max-1", "n_max-2"):
        port = free_port()
        command = [options.server, "--model", options.model, "--host", "127.0.0.1", "--port", str(port),
                   "--parallel", str(parallel), "--ctx-size", str(1024 * parallel), "--kv-unified", "--no-jinja"]
        if options.threads:
            command += ["--threads", str(options.threads), "--threads-batch", str(options.threads)]
        if name != "no-draft":
            command += ["--model-draft", options.draft, "--spec-type", "draft-simple"]
        if name.startswith("n_max-"):
            command += ["--spec-draft-n-max", name[len("n_max-"):]]
        yield name, command + options.server_option, port
    port = free_port()
    yield "trimtab", [os.path.join(options.build, "trimtabd"), "--model", options.model, "--draft", options.draft, "--listen",
                      f"127.0.0.1:{port}", "--socket", os.path.join(folder, "socket"), "--state", os.path.join(folder, "state"),
                      "--parallel", str(parallel), "--mode", "adaptive", "--threads", str(options.threads)], port


def ask(options, server, concurrency, block):
    """One block: what trimtab bench traffic says of it."""
    requests = options.rounds * concurrency
    server.resume()
    try:
        done = subprocess.run(
            [os.path.join(options.build, "trimtab-bench"), "traffic", "--steady", "--url", server.url, "--load", str(concurrency),
             "--requests", str(requests), "--skip", str(requests * block), "--prompts", options.prompts, "--max-tokens", str(options.tokens),
             "--temperature", str(options.temperature), "--ignore-eos"], capture_output=True, text=True, check=False)
        time.sleep(0.3)  # what was given up at the end is noticed before the server is stopped
    finally:
        server.pause()
    said = json.loads(done.stdout) if done.stdout else {}
    if said.get("answered") != requests or said["failed"] or said["refused"] or said["cut"] or not said["tokens_per_s"]:
        sys.exit(f"llama_server: {server.name} answered otherwise than asked: {done.stdout}{done.stderr}")
    return said


def student(freedom):
    """97.5 % quantile, as trimtab bench load has it."""
    if freedom <= 2:
        return (12.706, 4.303)[freedom - 1]
    return 1.96 + 2.372 / freedom + 2.822 / freedom**2 + 2.556 / freedom**3


def log_ratios(tps, name, other, parity):
    """Of two servers over the blocks of that parity, paired; blocks count from 1."""
    return [math.log(a / b) for block, (a, b) in enumerate(zip(tps[name], tps[other]), 1) if block % 2 == parity]


def ratio(tps, on_even, on_odd):
    """[ratio, low, high] of trimtab to one server on even blocks and to one on odd blocks."""
    logs = log_ratios(tps, "trimtab", on_even, 0) + log_ratios(tps, "trimtab", on_odd, 1)
    middle = statistics.fmean(logs)
    half = student(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return [math.exp(middle), math.exp(middle - half), math.exp(middle + half)]


def summarize(concurrency, tps, prompt_tokens):
    rivals = [name for name in tps if name != "trimtab"]
    by_odd, by_even = (max(rivals, key=lambda name: statistics.fmean(log_ratios(tps, name, "no-draft", parity)))
                       for parity in (1, 0))
    return {"concurrency": concurrency, "best": by_odd if by_odd == by_even else f"{by_odd},{by_even}",
            "trimtab_to_best": ratio(tps, by_odd, by_even), "trimtab_to_default": ratio(tps, "default", "default"),
            "trimtab_to_no_draft": ratio(tps, "no-draft", "no-draft"),
            "tps": {name: statistics.fmean(values) for name, values in tps.items()}, "prompt_tokens": prompt_tokens}


def measure(options, servers, concurrency, done):
    tps, prompt_tokens = {server.name: [] for server in servers}, {}
    for block in range(options.blocks + 1):  # the first one is for the caches, and for what trimtab learns
        for turn in range(len(servers)):
            server = servers[(turn + block) % len(servers)]
            said = ask(options, server, concurrency, block)
            done()
            if block > 0:
                tps[server.name].append(said["tokens_per_s"])
            prompt_tokens[server.name] = said["prompt_tokens"]
    return summarize(concurrency, tps, prompt_tokens)


def show(row):
    def interval(values):
        return "%.3f (%.3f..%.3f)" % tuple(values)

    print(f"{row['concurrency']} at a time: trimtab / best ({row['best']}) {interval(row['trimtab_to_best'])}, "
          f"/ default {interval(row['trimtab_to_default'])}, / no draft {interval(row['trimtab_to_no_draft'])}")
    print("  tokens/s: " + ", ".join(f"{name} {value:.1f}" for name, value in row["tps"].items()))
    if len(set(row["prompt_tokens"].values())) > 1:
        print("  prompt tokens differ, so do the chat templates: " + json.dumps(row["prompt_tokens"]))


def read_options():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0], epilog=TARGETS)
    parser.add_argument("--server", required=True, help="the llama-server (./bootstrap llama-server prints it)")
    parser.add_argument("--build", required=True, help="the folder with trimtabd and trimtab-bench")
    parser.add_argument("--model", required=True)
    parser.add_argument("--draft", required=True)
    parser.add_argument("--prompts", default=os.path.join(here, "../../models/bench-prompts.jsonl"))
    parser.add_argument("--concurrency", default="1,4,8", type=lambda text: [int(word) for word in text.split(",")])
    parser.add_argument("--blocks", default=16, type=int, help="timed blocks of each load, at least 2")
    parser.add_argument("--rounds", default=4, type=int, help="requests of a block for each one at a time")
    parser.add_argument("--tokens", default=64, type=int, help="tokens a request")
    parser.add_argument("--temperature", default=0, type=float)
    parser.add_argument("--threads", default=os.cpu_count(), type=int)
    parser.add_argument("--server-option", default=[], action="append", help="one more option for llama-server; may be repeated")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of text")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds wants at least 1")
    if options.blocks < 2:
        parser.error("--blocks wants at least 2: the best setting is chosen on one and compared on another")
    return options


def main():
    options = read_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    servers, rows, asked = [], [], 0
    with tempfile.TemporaryDirectory(prefix="trimtab-llama-server.") as folder:
        try:
            for name, command, port in commands(options, folder):
                servers.append(Server(name, command, port, os.path.join(folder, name + ".log")))
                servers[-1].wait_until_ready()
                if name != "trimtab":
                    servers[-1].check_drafting()
                servers[-1].pause()

            def done():
                nonlocal asked
                asked += 1
                if sys.stderr.isatty():
                    everything = len(options.concurrency) * (options.blocks + 1) * len(servers)
                    print(f"\r\033[K{asked} of {everything}", end="\n" if asked == everything else "", file=sys.stderr, flush=True)

            for concurrency in options.concurrency:
                rows.append(measure(options, servers, concurrency, done))
                if not options.json:
                    show(rows[-1])
        finally:
            for server in servers:
                server.stop()
    if options.json:
        print(json.dumps({"schema": "trimtab.bench.llama-server/1", "blocks": options.blocks, "rounds": options.rounds,
                          "tokens": options.tokens, "temperature": options.temperature, "rows": rows}))
    else:
        print(TARGETS)


if __name__ == "__main__":
    main()
