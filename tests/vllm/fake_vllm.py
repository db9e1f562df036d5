"""A server with vLLM's dev routes whose workers are the stand-in of controller/vllm/test_worker.py with
the real extension mixed in: GET /version, /server_info, POST /collective_rpc, and faults.

usage: fake_vllm.py PORT-FILE FOLDER-OF-EXTENSION [OPTION...]
  ranks=N         workers (1)
  no-dev          404 on every dev route
  no-extension, other-extension, engines=N, no-spec, not-adaptive, asked-not-running, asked-other (not by its configuration)
  lora, pp=N, eager, graphs=MODE   what excludes trimming (MODE: a number, or a name)
  key=K           /server_info and /collective_rpc want it
  late=SECONDS    the first trimtab_set_mode answers so late
  stale           every answer after the first three is the one before it
  broken-rank=R   that worker loses its manager after the start
  raise           the second trimtab_read is an exception in a worker (HTTP 500)
  huge            /server_info is larger than any
  page=FILE       /metrics is the body of this raw answer; with steps its tokens grow by 200 a second
  steps           drafts are graded all the time: slope 1.2, intercepts -0.3
  steps-flip      the same, and the law turns round when coefficients are written
"""

import json
import math
import os
import random
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

port_file, extension = sys.argv[1:3]
options = dict(word.partition("=")[::2] for word in sys.argv[3:])
sys.path.insert(0, extension)

import test_worker  # noqa: E402

lock = threading.Lock()  # vLLM's workers do one thing at a time: steps and calls share a channel
running = "not-adaptive" not in options and not any(word.startswith("asked") for word in options)
node = [test_worker.Rank(rank, adaptive=running) for rank in range(int(options.get("ranks", 1)))]
calls = {"answered": 0, "late": "late" in options, "before": None, "read": 0}


def info():
    speculative = {"method": "eagle3", "num_speculative_tokens": 4,
                   "enable_adaptive_verification": "not-adaptive" not in options}
    if "asked-not-running" in options:
        speculative["method"] = "ngram"
    name = "opc_ext.OpcProbe" if "other-extension" in options else "trimtab_vllm.Worker"
    graphs = options.get("graphs", "2")
    return {"vllm_config": {
        "model_config": {"enforce_eager": "eager" in options},
        "lora_config": {"max_loras": 1} if "lora" in options else None,
        "compilation_config": {"cudagraph_mode": int(graphs) if graphs.isdigit() else graphs},
        "parallel_config": {
            "pipeline_parallel_size": int(options.get("pp", 1)),
            "worker_extension_cls": "" if "no-extension" in options else name,
            "data_parallel_size": int(options.get("engines", 1)),
        },
        "speculative_config": None if "no-spec" in options else speculative,
        "padding": "x" * (3 << 20 if "huge" in options else 0),
    }}


def grade(generator):
    """One step of every worker with the same drafts: what verification reveals of them."""
    estimator = node[0].model_runner.speculator.acceptance_estimator
    turned = "steps-flip" in options and estimator.slope.values[0] != 0.5
    slope, level = (-1.2, 0.9) if turned else (1.2, -0.3)
    requests = 16
    features, sampled, rejected = [], [], []
    for _ in range(requests):
        row = [generator.uniform(-2, 4) for _ in range(4)]
        accepted = 0
        while accepted < 4 and generator.random() < 1 / (1 + math.exp(-slope * row[accepted] - level)):
            accepted += 1
        features.append(row)
        sampled.append(accepted + 1)
        rejected.append(4 - accepted)
    for rank in node:
        own = rank.model_runner.speculator.acceptance_estimator
        own.REFIT_INTERVAL = own.__dict__.get("REFIT_INTERVAL", 10**9)  # only trimtab fits here
        own.features = test_worker.Tensor(features)
        own.step(test_worker.Tensor(range(requests)), test_worker.Tensor(sampled),
                 test_worker.Tensor(rejected))
        test_worker.budget(rank)


START = time.monotonic()


def page():
    with open(options["page"], "rb") as file:
        body = file.read().partition(b"\r\n\r\n")[2]
    if not any(word.startswith("steps") for word in options):
        return body
    made = int((time.monotonic() - START) * 200)
    for head, more in ((b"vllm:generation_tokens_total", made), (b"vllm:iteration_tokens_total_count", made // 4),
                       (b"vllm:spec_decode_num_accepted_tokens_total", made // 2)):
        body = re.sub(rb"(?m)^(" + head + rb"\{[^}]*\} )([0-9.e+]+)$",
                      lambda found, more=more: found.group(1) + str(float(found.group(2)) + more).encode(), body)
    return body


def step_forever():
    generator = random.Random(5)
    while True:
        with lock:
            grade(generator)
        time.sleep(0.02)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def answer(self, status, body):
        text = json.dumps(body, allow_nan=False).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def allowed(self):
        wanted = options.get("key")
        if wanted is None or self.headers.get("Authorization") == "Bearer " + wanted:
            return True
        self.answer(401, {"error": {"message": "Unauthorized"}})
        return False

    def do_GET(self):
        if self.path == "/version":
            self.answer(200, {"version": "0.33.0"})
        elif self.path == "/metrics" and "page" in options:
            body = page()
            self.send_response(200)
            self.send_header("content-type", "text/plain; version=1.0.0; charset=utf-8")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        elif self.path == "/server_info?config_format=json" and "no-dev" not in options:
            if self.allowed():
                self.answer(200, info())
        else:
            self.answer(404, {"detail": "Not Found"})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path != "/collective_rpc" or "no-dev" in options:
            self.answer(404, {"detail": "Not Found"})
        elif "timeout" in body or self.headers.get("content-type") != "application/json":
            os._exit(3)  # never to be sent: the test then finds nobody here
        elif self.allowed():
            self.call(body["method"], body["args"])

    def call(self, method, arguments):
        if method == "trimtab_set_mode" and calls["late"]:
            calls["late"] = False
            time.sleep(float(options["late"]))
        calls["read"] += method == "trimtab_read"
        if "raise" in options and method == "trimtab_read" and calls["read"] == 2:
            self.answer(500, {"error": {"message": "Worker failed with error 'device lost'"}})
            return
        with lock:
            if calls["answered"] == 3 and "broken-rank" in options:
                node[int(options["broken-rank"])].model_runner.adaptive_verification = None
            results = [getattr(rank, method)(*arguments) for rank in node]
            calls["answered"] += 1
        if "stale" in options and calls["answered"] > 3:
            results, calls["before"] = calls["before"], results
        else:
            calls["before"] = results
        self.answer(200, {"results": results})


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
if "steps" in options or "steps-flip" in options:
    threading.Thread(target=step_forever, daemon=True).start()
with open(port_file + ".part", "w") as out:
    out.write(str(server.server_address[1]))
os.rename(port_file + ".part", port_file)
server.serve_forever()
