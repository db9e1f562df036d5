#!/usr/bin/env python3
"""A stand-in for trimtabd that speaks docs/api.md, for the console's tests.

  fake_daemon.py --socket PATH | --port N   serve until SIGTERM
      --mode MODE --read-only --refuse TEXT --slow-switch S --hang  --health STATE --positions N --nodes N --token TOKEN
  fake_daemon.py --write DIR                write the documents of one fixed moment, the fixtures of the golden screens

Standard library only. Figures follow smooth, seeded curves, so that screens look alive and files are reproducible.
"""
import argparse
import json
import math
import os
import socketserver
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, unquote, urlsplit

FIXED_MS = 1790000000000  # 2026-09-21 14:13:20 UTC
TOGGLED_AGO_MS = 380_000
DRIFT_AGO_MS = 610_000
INTERCEPTS = [-0.31, -0.42, -0.40, -0.55, -0.61, -0.72]


def wave(t_ms, *parts):
    """A sum of slow sines: period in seconds, height, phase."""
    return sum(height * math.sin(2 * math.pi * t_ms / 1000 / period + phase) for period, height, phase in parts)


class Fake:
    def __init__(self, mode="adaptive", positions=6, read_only=False, nodes=1, health="ok", start_ms=FIXED_MS,
                 refuse="", slow_switch=0.0):
        self.mode, self.positions, self.read_only, self.health = mode, positions, read_only, health
        self.nodes_count, self.refuse, self.slow_switch = nodes, refuse, slow_switch
        self.generation, self.began_ms, self.switch_at = 3, start_ms, 0
        self.decided, self.unable = [], ""

    def throughput(self, t_ms):
        base = 412 if t_ms >= self.began_ms - TOGGLED_AGO_MS else 348
        return base + wave(t_ms, (97, 9, 1), (31, 6, 2), (7, 5, 0))

    def slope(self, t_ms):
        fresh = 0.09 * math.exp(-max(0, t_ms - (self.began_ms - DRIFT_AGO_MS)) / 60_000)
        dip = -fresh if t_ms >= self.began_ms - DRIFT_AGO_MS else 0.02
        return 0.552 + dip + wave(t_ms, (240, 0.012, 0), (53, 0.006, 1))

    def intercept(self, k, t_ms):
        base = INTERCEPTS[k] if k < len(INTERCEPTS) else -0.7 - 0.06 * (k - 5)
        return base + wave(t_ms, (200 + 17 * k, 0.04, k), (37, 0.012, 2 * k))

    def position(self, k, t_ms):
        reached = int(1840 * 0.66 ** k)
        b = self.intercept(k, t_ms)
        accepted = 1 / (1 + math.exp(-(1.2 + b)))
        if k >= 4 and self.positions <= 6:
            return {"position": k, "intercept": None, "intercept_se": None, "accepted_ratio": None,
                    "predicted_ratio": None, "reached": 0, "n": 0}
        return {"position": k, "intercept": round(b, 4), "intercept_se": round(0.02 * 1.35 ** k, 4),
                "accepted_ratio": round(accepted + 0.012 * math.sin(3 * k), 4), "predicted_ratio": round(accepted, 4),
                "reached": reached, "n": reached * 50}

    def snapshot(self, t_ms, node="local"):
        on = self.mode != "off"
        switching = bool(self.switch_at) and t_ms < self.switch_at
        shown = self.old_mode if switching else self.mode
        up = 761.2 + (t_ms - self.began_ms) / 1000
        steps = int(9120 + (up - 761.2) * 42)
        return {
            "schema": "trimtab.snapshot/1",
            "node": {"id": node, "kind": "llama", "engine": "libllama", "version": "0.5.0",
                     "model": "SmolLM2-135M-Instruct", "draft": "smollm2-draft-9m", "tier": 2,
                     "capabilities": ["mode", "settings"], "unable": self.unable},
            "mode": shown, "switching": switching, "fixed_draft": 2, "max_draft": self.positions,
            "generation": self.generation, "time_ms": t_ms, "uptime_s": round(up, 1), "window_ms": 5000,
            "throughput_tps": round(self.throughput(t_ms), 1), "tokens_per_step": round(2.31 + wave(t_ms, (61, .06, 0)), 3) if on else 1.0,
            "step_ms": round(23.4 + wave(t_ms, (23, .6, 0)), 2), "draft_ms": 2.1 if on else None, "verify_ms": 21.0,
            "own_ms": 0.14, "own_ratio": 0.006, "running": 8, "queued": 0, "steps": steps,
            "drafted_total": 364800, "admitted_total": 175104, "verified_total": 175104, "accepted_total": 141834,
            "emitted_total": steps * 18, "requests_total": 214, "target_rows_total": 250000, "failed_total": 0,
            "drafted_per_step": 40.0 if on else 0, "verified_per_step": 19.2 if on else 0,
            "accepted_verified_ratio": 0.81 if on else None, "budget": 19.2 if on else 0, "predicted_tps": 420.0,
            "estimator": {"kind": "online", "stratum": "model/greedy/t0", "slope": round(self.slope(t_ms), 4),
                          "slope_se": 0.0107, "level": -0.4, "drift_z": 0.8, "ece": 0.0204, "auc": 0.823,
                          "refits": 214 + max(0, steps - 9120) // 20, "drift_events": 1, "last_drift_ms": self.began_ms - DRIFT_AGO_MS,
                          "positions": [self.position(k, t_ms) for k in range(self.positions)]},
            "store": {"ok": True, "since_ms": self.began_ms - 761_200, "reason": ""},
            "health": {"state": self.health, "reason": "" if self.health == "ok" else "made up for a test"},
            "toggle": {"time_ms": self.began_ms - TOGGLED_AGO_MS, "before": "fixed", "after": "adaptive", "gain": 0.184,
                       "gain_low": 0.151, "gain_high": 0.219, "n": 600, "window_s": 300, "tps_before": 348.2, "tps_after": 412.3,
                       "step_ms_before": 24.9, "step_ms_after": 23.2},
        }

    def nodes(self):
        rows = []
        for i in range(self.nodes_count):
            rows.append({"id": "local" if i == 0 else f"gpu-{i:02d}", "kind": "llama" if i == 0 else "vllm",
                         "engine": "libllama" if i == 0 else "vLLM", "version": "0.5.0" if i == 0 else "0.33.0",
                         "model": "SmolLM2-135M-Instruct" if i == 0 else "Llama-3.3-70B-Instruct", "draft": "smollm2-draft-9m",
                         "tier": 2 if i == 0 else i % 2, "capabilities": ["mode", "settings"] if i % 2 == 0 else [],
                         "unable": "" if i % 2 == 0 else "read-only: the node was started without the trimtab worker extension",
                         "mode": self.mode if i == 0 else "adaptive", "generation": self.generation,
                         "health": {"state": self.health, "reason": ""} if i != 2 else {"state": "failed", "reason": "connection refused"}})
        return {"schema": "trimtab.nodes/1", "read_only": self.read_only,
                "read_only_reason": "this token may read only" if self.read_only else "",
                "daemon": {"version": "0.1.0", "pid": os.getpid() if self.began_ms != FIXED_MS else 4242,
                           "started_ms": self.began_ms - 761_200, "store_path": "/var/lib/trimtab/trimtab.db"},
                "nodes": rows}

    def history(self, names, from_ms, to_ms, step_ms):
        from_ms -= from_ms % step_ms
        first = max(from_ms, self.began_ms - 761_200)
        functions = {"slope": self.slope, "throughput_tps": self.throughput,
                     "tokens_per_step": lambda t: 2.31 + wave(t, (61, .06, 0)), "step_ms": lambda t: 23.4 + wave(t, (23, .6, 0)),
                     "accepted_ratio": lambda t: 0.81 + wave(t, (71, .01, 0))}
        series = {}
        for name in names:
            f = functions.get(name)
            if name.startswith("intercept."):
                k = int(name.split(".")[1])
                if k >= self.positions:
                    continue
                f = lambda t, k=k: self.intercept(k, t)  # noqa: E731
            if f:
                series[name] = [[t, round(f(t), 4)] for t in range(first - first % step_ms + step_ms, to_ms, step_ms)]
        return {"schema": "trimtab.history/1", "from_ms": from_ms, "to_ms": to_ms, "step_ms": step_ms, "series": series}

    def decisions(self):
        b = self.began_ms

        def row(ago, kind, severity, what, before, after, who, origin, text, numbers):
            return {"time_ms": b - ago, "kind": kind, "severity": severity, "what": what, "before": before, "after": after,
                    "who": who, "origin": origin, "text": text, "numbers": numbers}
        return {"schema": "trimtab.decisions/1", "decisions": self.decided + [
            row(95_000, "event", "warning", "queue", "", "", "", "daemon", "12 requests waited longer than 2 s", {"waited": 12, "longest_s": 3.42}),
            row(TOGGLED_AGO_MS, "decision", "info", "mode", "fixed", "adaptive", "uid 1000", "socket", "toggled from the console",
                {"generation": 3, "fixed_draft": 2, "throughput_tps": 348.2}),
            row(DRIFT_AGO_MS, "event", "warning", "drift", "", "", "planner", "daemon", "level shifted at position 0: sums cut to a tenth",
                {"z": 5.21, "shift_logit": 0.41, "stratum": "model/greedy/t0"}),
            row(640_000, "decision", "info", "max_draft", "4", "6", "uid 1000", "socket", "more room for code completion", {"generation": 2}),
            row(755_000, "event", "info", "profile", "", "", "", "daemon", "cost profile read from its cache", {"cells": 42}),
            row(761_200, "event", "info", "start", "", "", "", "daemon", "node local started on libllama 0.5.0", {"threads": 2, "parallel": 8}),
        ]}

    def requests(self):
        rows = []
        for i in range(8):
            rows.append({"id": 207 + i, "phase": "prefill" if i == 7 else "decode", "age_s": round(0.4 + (7 - i) * 1.37, 2),
                         "prompt_tokens": 41 + 13 * i % 97, "emitted": 0 if i == 7 else (7 - i) * 23 + 5,
                         "tokens_per_step": None if i == 7 else round(2.9 - 0.17 * i, 2), "drafter": "ngram" if i == 3 else "model",
                         "rule": ["greedy", "ratio", "coupled"][i % 3], "temperature": [0, 0.7, 1][i % 3], "seeded": i % 3 == 2})
        rows.append({"id": 215, "phase": "queued", "age_s": 0.1, "prompt_tokens": 812, "emitted": 0, "tokens_per_step": None,
                     "drafter": "", "rule": "greedy", "temperature": 0, "seeded": False})
        return {"schema": "trimtab.requests/1", "requests": rows}

    def calibration(self):
        strata = []
        for i, (name, slope, level) in enumerate([("model/greedy/t0", 0.91, 0.12), ("model/ratio/t1", 0.552, -0.4),
                                                  ("model/coupled/t1", 0.58, -0.62), ("ngram/greedy/t0", 0.71, -0.1)]):
            bins = [{"n": 0 if i == 3 and b < 4 else round(40 + 900 * math.exp(-((b - 6.5) / 2.2) ** 2) / (1 + i), 1)} for b in range(10)]
            for b, row in enumerate(bins):
                row["sum_p"] = round(row["n"] * (b + 0.5) / 10, 2)
                row["sum_y"] = round(row["sum_p"] * (1 + 0.04 * math.sin(3 * b + i)), 2)
            strata.append({"stratum": name, "kind": "online", "slope": slope, "slope_se": 0.0107 * (1 + i), "level": level, "centre": 2.1,
                           "refits": 214 >> i, "drift_z": 0.8 - 0.7 * i, "drift_events": int(i == 0), "ece": 0.0204 + 0.006 * i,
                           "brier": 0.17 + 0.01 * i, "log_loss": 0.51 + 0.02 * i, "auc": 0.823 - 0.03 * i if i < 3 else None,
                           "bins": bins, "positions": []})
        return {"schema": "trimtab.calibration/1", "strata": strata}

    def cost(self):
        measured = [(1, 6.6), (2, 15.1), (4, 22.1), (7, 27.3), (8, 25.5), (12, 28.9), (16, 31.1), (24, 44.8), (32, 58), (48, 77), (64, 95)]
        cells = [{"tokens": tokens, "context_band": band, "ms": round(ms * (1 + 0.06 * band), 2), "spread_ms": round(0.3 + 0.01 * ms, 2),
                  "n": 4000 // tokens, "dropped": tokens % 3} for band in (0, 1) for tokens, ms in measured]
        return {"schema": "trimtab.cost/1", "verify": cells, "draft": [{"requests": 1, "ms": 0.45, "spread_ms": 0.02, "n": 900, "dropped": 0}],
                "own": [{"requests": 8, "ms": 0.14, "spread_ms": 0.01, "n": 9000, "dropped": 0}],
                "uniform_tps": [301.2, 352.9, 348.2, 331.7, 309.4, 288.1, 264.9]}

    def set_mode(self, body, now_ms):
        if self.refuse:
            return 422, {"error": {"message": self.refuse, "type": "invalid_request_error", "param": "mode", "code": None}}
        if body.get("expect_generation") not in (None, self.generation):
            return 409, {"error": {"message": f"the generation is {self.generation}", "type": "conflict", "param": "expect_generation",
                                   "code": None}, "generation": self.generation}
        if body.get("mode") not in ("adaptive", "fixed", "off", "shadow"):
            return 400, {"error": {"message": "mode must be adaptive, fixed, off or shadow", "type": "invalid_request_error",
                                   "param": "mode", "code": None}}
        self.old_mode, self.mode = self.mode, body["mode"]
        self.generation += 1
        self.switch_at = now_ms + int(self.slow_switch * 1000)
        self.decided.insert(0, {"time_ms": now_ms, "kind": "decision", "severity": "info", "what": "mode", "before": self.old_mode,
                                "after": self.mode, "who": f"uid {os.getuid()}", "origin": "socket", "text": body.get("reason", ""),
                                "numbers": {"generation": self.generation}})
        return 200, {"mode": self.mode, "generation": self.generation}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def address_string(self):
        return "socket"

    def log_message(self, *_args):
        pass

    def reply(self, status, document):
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        fake, now_ms = self.server.fake, int(time.time() * 1000)
        url = urlsplit(self.path)
        query = {key: value[0] for key, value in parse_qs(url.query).items()}
        parts = [unquote(part) for part in url.path.split("/")]
        if self.server.hang and "snapshot" in parts:
            time.sleep(3600)
        if url.path == "/api/v1/nodes":
            return self.reply(200, fake.nodes())
        if len(parts) == 6 and parts[:4] == ["", "api", "v1", "nodes"]:
            if parts[4] not in [row["id"] for row in fake.nodes()["nodes"]]:
                return self.reply(404, {"error": {"message": f"no node \"{parts[4]}\"", "type": "not_found", "param": None, "code": None}})
            if parts[5] == "snapshot":
                return self.reply(200, fake.snapshot(now_ms, parts[4]))
            if parts[5] == "history":
                to_ms = int(query.get("to", now_ms))
                return self.reply(200, fake.history(query.get("series", "").split(","), int(query.get("from", to_ms - 900_000)), to_ms,
                                                    max(1000, int(query.get("step", 2000)))))
            if parts[5] in ("decisions", "requests", "calibration", "cost"):
                return self.reply(200, getattr(fake, parts[5])())
            if parts[5] == "past":
                at_ms = int(query["at"])
                snapshot = dict(fake.snapshot(at_ms, parts[4]), generation=0, health={"state": "", "reason": ""})
                return self.reply(200, {"schema": "trimtab.past/1", "at_ms": at_ms, "snapshot": snapshot,
                                        "calibration": fake.calibration(), "cost": fake.cost()})
            if parts[5] == "settings":
                return self.reply(200, dict(self.server.settings, generation=fake.generation))
        return self.reply(404, {"error": {"message": "no such path", "type": "not_found", "param": None, "code": None}})

    def do_PUT(self):
        fake = self.server.fake
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        if self.server.bare:
            return self.send_error(int(body["reason"]))
        if self.server.token and self.headers.get("Authorization") != "Bearer " + self.server.token:
            return self.reply(401, {"error": {"message": "writing needs the write token", "type": "authentication_error", "param": None, "code": None}})
        if self.path.endswith("/mode"):
            return self.reply(*fake.set_mode(body, int(time.time() * 1000)))
        if self.path.endswith("/settings"):
            for key in body:
                if key not in self.server.settings and key not in ("expect_generation", "reason"):
                    return self.reply(400, {"error": {"message": f"unknown setting \"{key}\"", "type": "invalid_request_error", "param": key, "code": None}})
            if self.server.awaits and "estimator" in body:
                self.server.settings.update(pending={"estimator": body.pop("estimator")}, pending_reason=self.server.awaits)
            if fake.slow_switch:
                fake.old_mode, fake.switch_at = fake.mode, int((time.time() + fake.slow_switch) * 1000)
            self.server.settings.update({key: value for key, value in body.items() if key in self.server.settings})
            fake.generation += 1
            return self.reply(200, dict(self.server.settings, generation=fake.generation))
        return self.reply(404, {"error": {"message": "no such path", "type": "not_found", "param": None, "code": None}})


    def do_DELETE(self):
        request = self.path.rsplit("/", 1)[1]
        if request not in [str(row["id"]) for row in self.server.fake.requests()["requests"]]:
            return self.reply(404, {"error": {"message": f"no request {request} runs or waits here", "type": "not_found", "param": None, "code": None}})
        return self.reply(200, {"id": int(request), "cancelled": True})


class Quiet:
    def handle_error(self, request, client_address):
        """A console that went away is nothing to report."""


class UnixServer(Quiet, socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


class TcpServer(Quiet, socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    allow_reuse_address = True


def write_fixtures(folder):
    fake = Fake()
    names = ["slope", "throughput_tps", "step_ms", "tokens_per_step", "accepted_ratio"] + [f"intercept.{k}" for k in range(6)]
    all_documents = {"nodes": fake.nodes(), "history": fake.history(names, FIXED_MS - 900_000, FIXED_MS, 4000),
                     "decisions": fake.decisions(), "requests": fake.requests(), "calibration": fake.calibration(),
                     "cost": fake.cost(), "snapshot": fake.snapshot(FIXED_MS)}
    for name, document in all_documents.items():
        with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as out:
            json.dump(document, out, separators=(",", ":"))
            out.write("\n")
    for count in (1, 16):
        with open(os.path.join(folder, f"snapshot-{count}.json"), "w", encoding="utf-8") as out:
            json.dump(Fake(positions=count).snapshot(FIXED_MS), out, separators=(",", ":"))
            out.write("\n")
    with open(os.path.join(folder, "fleet.json"), "w", encoding="utf-8") as out:
        json.dump(Fake(nodes=5).nodes(), out, separators=(",", ":"))
        out.write("\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket")
    parser.add_argument("--port", type=int)
    parser.add_argument("--write")
    parser.add_argument("--mode", default="adaptive")
    parser.add_argument("--positions", type=int, default=6)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--read-only", action="store_true")
    parser.add_argument("--refuse", default="")
    parser.add_argument("--slow-switch", type=float, default=0)
    parser.add_argument("--hang", action="store_true", help="never answer a snapshot")
    parser.add_argument("--health", default="ok")
    parser.add_argument("--token", default="")
    parser.add_argument("--awaits", default="", help="a change of the estimator is accepted and waits for this")
    parser.add_argument("--unable", default="", help="why no node can be steered")
    parser.add_argument("--bare", action="store_true", help="answer every change with the status that is its reason, and no JSON")
    args = parser.parse_args()
    if args.write:
        write_fixtures(args.write)
        return 0
    if args.socket and os.path.exists(args.socket):
        os.unlink(args.socket)
    server = UnixServer(args.socket + ".new", Handler) if args.socket else TcpServer(("127.0.0.1", args.port or 0), Handler)
    server.fake = Fake(args.mode, args.positions, args.read_only, args.nodes, args.health, int(time.time() * 1000), args.refuse,
                       args.slow_switch)
    server.hang, server.token, server.bare = args.hang, args.token, args.bare
    server.fake.unable, server.awaits = args.unable, args.awaits
    server.settings = {"schema": "trimtab.settings/1", "max_draft": 6, "fixed_draft": 2, "exploration": True, "estimator": "online",
                       "refit_interval_steps": 20, "min_gain": 0.01, "draft": "auto"}
    threading.Thread(target=server.serve_forever, daemon=True).start()
    if args.socket:  # its name appears when it answers
        os.rename(args.socket + ".new", args.socket)
    else:
        print(server.server_address[1], flush=True)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    sys.exit(main())
