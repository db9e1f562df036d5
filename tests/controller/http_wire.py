"""http_wire.py - the front over an echo node, seen from the wire: formats, errors, streams, rights. Speaks TAP.

usage: http_wire.py HTTP_ECHO (the program tests/controller/http_echo)
"""
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

PROGRAM = sys.argv[1]
count = failed = 0


def check(name, good, detail=""):
    global count, failed
    count += 1
    if not good:
        failed += 1
    print(f"{'ok' if good else 'not ok'} {count} - {name}", flush=True)
    if not good:
        print("# " + str(detail).replace("\n", "\n# ")[:2000], flush=True)


def equal(name, got, wanted):
    check(name, got == wanted, f"got    {got!r}\nwanted {wanted!r}")


def skip(name, why):
    global count
    count += 1
    print(f"ok {count} - {name} # SKIP {why}", flush=True)


class Server:
    def __init__(self, *arguments):
        self.process = subprocess.Popen([PROGRAM, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ports, self.error = [], None
        for line in self.process.stdout:
            word, _, rest = line.strip().partition(" ")
            if word == "port":
                self.ports.append(int(rest))
            elif word == "ready":
                break
            elif word == "error":
                self.error = rest
                self.process.wait(10)
                return

    @property
    def port(self):
        return self.ports[0]

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def counts(self):
        return dict(zip(("live", "submitted", "finished", "cancelled"), map(int, self.tell("counts").split())))

    def params(self):
        return json.loads(self.tell("params"))

    def quit(self):
        if self.error:
            return self.process.returncode
        self.process.stdin.close()
        return self.process.wait(20)

    def request(self, method, path, body=None, headers=None, port=None):
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=20)
        try:
            if body is not None and not isinstance(body, (bytes, str)):
                body = json.dumps(body)
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            text = response.read()
            kind = response.getheader("Content-Type", "")
            return response, json.loads(text) if kind.startswith("application/json") and text else text
        finally:
            connection.close()

    def stream(self, path, body):
        """Events of a stream, as parsed JSON, with [DONE] as a string."""
        response, text = self.request("POST", path, dict(body, stream=True))
        return response, events_of(text)


def events_of(text):
    parts = text.decode().split("\n\n")
    assert parts[-1] == "", f"unfinished event {parts[-1]!r}"
    events = []
    for part in parts[:-1]:
        assert part.startswith("data: ") and "\n" not in part, part
        events.append(part[6:] if part == "data: [DONE]" else json.loads(part[6:]))
    return events


def wait_for(condition, seconds=2.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return condition()


def test_completions(s):
    response, a = s.request("POST", "/v1/completions", {"prompt": "hi", "max_tokens": 9, "model": "echo-tiny"})
    equal("a completion is 200", response.status, 200)
    equal("its keys", sorted(a), ["choices", "created", "id", "model", "object", "usage"])
    equal("its object", a["object"], "text_completion")
    check("its id", re.fullmatch(r"cmpl-[0-9a-f]{24}", a["id"]), a["id"])
    equal("created is the daemon's clock in seconds", a["created"], 1790000000)
    choice = a["choices"][0]
    equal("the finish reason at max_tokens", choice["finish_reason"], "length")
    equal("usage", {k: a["usage"][k] for k in ("prompt_tokens", "completion_tokens", "total_tokens")},
          {"prompt_tokens": 2, "completion_tokens": 9, "total_tokens": 11})
    _, ids = s.request("POST", "/v1/completions", {"prompt": [104, 105], "max_tokens": 9})
    equal("ids and text of one prompt give one text", ids["choices"][0]["text"], choice["text"])
    _, default = s.request("POST", "/v1/completions", {"prompt": "hi"})
    equal("without max_tokens a completion has 16", default["usage"]["completion_tokens"], 16)
    check("and begins alike", default["choices"][0]["text"].startswith(choice["text"]))
    _, several = s.request("POST", "/v1/completions", {"prompt": ["hi", "hi!"], "n": 2, "max_tokens": 4})
    equal("prompts x n choices, in order", [c["index"] for c in several["choices"]], [0, 1, 2, 3])
    equal("the first is the single one", several["choices"][0]["text"], default["choices"][0]["text"]
          [:len(several["choices"][0]["text"])])
    check("choices differ", len({c["text"] for c in several["choices"]}) == 4, several)
    equal("each prompt counts once", several["usage"]["prompt_tokens"], 5)
    equal("the last choice's indices reach the node", [s.params()[k] for k in ("prompt", "choice")], [1, 1])
    _, lists = s.request("POST", "/v1/completions", {"prompt": [[104, 105], [104, 105, 33]], "n": 2, "max_tokens": 4})
    equal("lists of ids do as lists of strings do", [c["text"] for c in lists["choices"]],
          [c["text"] for c in several["choices"]])
    _, natural = s.request("POST", "/v1/completions", {"prompt": "hi", "max_tokens": 1000})
    equal("a natural end", (natural["choices"][0]["finish_reason"], natural["usage"]["completion_tokens"]),
          ("stop", 200))
    _, stopped = s.request("POST", "/v1/completions", {"prompt": "hi", "max_tokens": 100, "stop": ["zzz", "thr"]})
    equal("a stop string", (stopped["choices"][0]["finish_reason"], stopped["choices"][0]["text"][-5:]),
          ("stop", " two "))


def test_chat(s):
    messages = [{"role": "system", "content": "be"}, {"role": "user", "content": [{"type": "text", "text": "h"},
                                                                                   {"type": "text", "text": "i"}]}]
    response, a = s.request("POST", "/v1/chat/completions", {"messages": messages, "max_tokens": 6})
    equal("a chat completion is 200", response.status, 200)
    equal("its object", a["object"], "chat.completion")
    check("its id", re.fullmatch(r"chatcmpl-[0-9a-f]{24}", a["id"]), a["id"])
    equal("its message", (a["choices"][0]["message"]["role"], a["choices"][0]["finish_reason"]), ("assistant", "length"))
    equal("the template was applied", a["usage"]["prompt_tokens"], len("<system>be<user>hi"))
    messages[1]["content"] = "hi"
    _, b = s.request("POST", "/v1/chat/completions", {"messages": messages, "max_completion_tokens": 6})
    equal("text parts are the joined text", b["choices"][0]["message"], a["choices"][0]["message"])
    _, c = s.request("POST", "/v1/chat/completions", {"messages": messages})
    equal("without max_tokens the node decides", s.params()["max_tokens"], 0)
    check("and the chat is longer", c["usage"]["completion_tokens"] == 200, c["usage"])
    _, d = s.request("POST", "/v1/chat/completions", {"messages": messages, "max_completion_tokens": 3, "max_tokens": 7})
    equal("max_completion_tokens wins", d["usage"]["completion_tokens"], 3)
    for part in ("developer", "assistant"):
        response, _ = s.request("POST", "/v1/chat/completions",
                                {"messages": messages + [{"role": part, "content": "x"}], "max_tokens": 1})
        equal(f"role {part} is taken", response.status, 200)


def test_streams(s):
    body = {"prompt": "hi", "max_tokens": 40}
    _, whole = s.request("POST", "/v1/completions", body)
    response, events = s.stream("/v1/completions", body)
    check("a stream's content type", response.getheader("Content-Type").startswith("text/event-stream"))
    equal("it ends with [DONE]", events[-1], "[DONE]")
    chunks = events[:-1]
    equal("one id", len({c["id"] for c in chunks}), 1)
    equal("one object", {c["object"] for c in chunks}, {"text_completion"})
    equal("the same text", "".join(c["choices"][0]["text"] for c in chunks), whole["choices"][0]["text"])
    equal("one finish reason, last", [c["choices"][0]["finish_reason"] for c in chunks][-2:], [None, "length"])
    check("no usage unasked", all("usage" not in c for c in chunks))
    _, events = s.stream("/v1/completions", dict(body, stream_options={"include_usage": False}))
    check("nor when refused", all("usage" not in c for c in events[:-1]))
    _, events = s.stream("/v1/completions", dict(body, stream_options={"include_usage": True}))
    equal("usage is one extra chunk without choices", ([c for c in events[:-1] if "usage" in c], events[-2]["choices"]),
          ([events[-2]], []))
    equal("with the counts", events[-2]["usage"]["completion_tokens"], 40)

    chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 12}
    _, whole = s.request("POST", "/v1/chat/completions", chat)
    _, events = s.stream("/v1/chat/completions", chat)
    chunks = events[:-1]
    equal("chat chunks", {c["object"] for c in chunks}, {"chat.completion.chunk"})
    equal("the first delta carries the role", chunks[0]["choices"][0]["delta"], {"role": "assistant", "content": ""})
    check("only the first does", all("role" not in c["choices"][0]["delta"] for c in chunks[1:]))
    equal("the last delta is empty, with the reason", (chunks[-1]["choices"][0]["delta"],
          chunks[-1]["choices"][0]["finish_reason"]), ({}, "length"))
    equal("the same chat text", "".join(c["choices"][0]["delta"].get("content", "") for c in chunks),
          whole["choices"][0]["message"]["content"])

    body = {"prompt": ["a", "b"], "n": 3, "max_tokens": 20}
    _, whole = s.request("POST", "/v1/completions", body)
    _, events = s.stream("/v1/completions", body)
    texts, ends = [""] * 6, [0] * 6
    for c in events[:-1]:
        choice = c["choices"][0]
        texts[choice["index"]] += choice["text"]
        ends[choice["index"]] += choice["finish_reason"] is not None
    equal("six choices in one stream", texts, [c["text"] for c in whole["choices"]])
    equal("each ends once", ends, [1] * 6)


def test_logprobs(s):
    _, a = s.request("POST", "/v1/completions", {"prompt": "hi", "max_tokens": 60, "logprobs": 3})
    text, l = a["choices"][0]["text"], a["choices"][0]["logprobs"]
    equal("completion logprobs have four arrays", sorted(l), ["text_offset", "token_logprobs", "tokens", "top_logprobs"])
    equal("their tokens make the text", "".join(l["tokens"]), text)
    check("offsets are characters of the text",
          all(text[o:o + len(t)] == t for o, t in zip(l["text_offset"], l["tokens"])), l["text_offset"])
    check("half a character is spelled as bytes", "bytes:\\xe6" in l["top_logprobs"][0], l["top_logprobs"][0])
    check("minus infinity is a number", all(min(t.values()) == -9999 for t in l["top_logprobs"]))
    _, events = s.stream("/v1/completions", {"prompt": "hi", "max_tokens": 60, "logprobs": 3})
    parts = [c["choices"][0]["logprobs"] for c in events[:-1] if c["choices"][0]["logprobs"]]
    equal("streamed offsets are the same", sum((p["text_offset"] for p in parts), []), l["text_offset"])
    _, a = s.request("POST", "/v1/completions", {"prompt": "hi", "max_tokens": 2, "logprobs": 0})
    equal("logprobs 0 has no alternatives", a["choices"][0]["logprobs"]["top_logprobs"], None)
    chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 30, "logprobs": True, "top_logprobs": 2}
    _, a = s.request("POST", "/v1/chat/completions", chat)
    content = a["choices"][0]["logprobs"]["content"]
    equal("chat logprobs spell their bytes", b"".join(bytes(c["bytes"]) for c in content).decode(),
          a["choices"][0]["message"]["content"])
    equal("two alternatives each", {len(c["top_logprobs"]) for c in content}, {2})
    equal("their keys", sorted(content[0]), ["bytes", "logprob", "token", "top_logprobs"])
    chat.pop("top_logprobs")
    _, a = s.request("POST", "/v1/chat/completions", chat)
    equal("none without top_logprobs", {len(c["top_logprobs"]) for c in a["choices"][0]["logprobs"]["content"]}, {0})
    _, a = s.request("POST", "/v1/chat/completions", dict(chat, logprobs=False))
    equal("null when not asked for", a["choices"][0]["logprobs"], None)


def test_params(s):
    body = {"prompt": "x", "max_tokens": 3, "temperature": 0.5, "top_p": 0.25, "min_p": 0.125, "top_k": 7,
            "presence_penalty": -1, "frequency_penalty": 1.5, "repetition_penalty": 1.25, "seed": 42, "min_tokens": 2,
            "ignore_eos": True, "stop": "END", "logit_bias": {"5": 1, "7": -100}, "logprobs": 2, "user": "someone",
            "trimtab_rule": "ratio", "unknown_field": {"a": [1]}, "best_of": 1, "echo": False, "suffix": ""}
    response, _ = s.request("POST", "/v1/completions", body)
    equal("every field at once", response.status, 200)
    p = s.params()
    wanted = {"temperature": 0.5, "top_p": 0.25, "min_p": 0.125, "top_k": 7, "presence_penalty": -1,
              "frequency_penalty": 1.5, "repetition_penalty": 1.25, "seeded": 1, "seed": 42, "min_tokens": 2,
              "ignore_eos": 1, "stop": "END", "stop_count": 1, "bias_count": 2, "logprobs": 2, "max_tokens": 3,
              "rule_given": 1, "rule": 2, "choice": 0, "prompt": 0}
    equal("reaches the node", {k: p[k] for k in wanted}, wanted)
    s.request("POST", "/v1/completions", {k: None for k in body} | {"prompt": "x"})
    p = s.params()
    wanted = {"temperature": 1, "top_p": 1, "min_p": 0, "top_k": 0, "seeded": 0, "logprobs": -1, "stop_count": 0,
              "max_tokens": 16, "rule_given": 0, "repetition_penalty": 1, "ignore_eos": 0}
    equal("null is the default", {k: p[k] for k in wanted}, wanted)
    s.request("POST", "/v1/completions", {"prompt": "x", "temperature": 1e-9, "max_tokens": 1})
    equal("a tiny temperature is greedy", s.params()["temperature"], 0)
    s.request("POST", "/v1/completions", {"prompt": "x", "seed": -1, "max_tokens": 1})
    equal("a negative seed is a seed", s.params()["seed"], 2**64 - 1)


MESSAGES = [{"role": "user", "content": "hi"}]
BAD = [  # path, change to a good body, status, param, code
    ("c", {"prompt": None}, 400, "prompt", "invalid_value"),
    ("c", {"prompt": 5}, 400, "prompt", "invalid_type"),
    ("c", {"prompt": []}, 400, "prompt", "invalid_value"),
    ("c", {"prompt": ""}, 400, "prompt", "invalid_value"),
    ("c", {"prompt": [[]]}, 400, "prompt", "invalid_value"),
    ("c", {"prompt": ["a", 5]}, 400, "prompt", "invalid_type"),
    ("c", {"prompt": ["a", [5]]}, 400, "prompt", "invalid_type"),
    ("c", {"prompt": [5, "a"]}, 400, "prompt", "invalid_type"),
    ("c", {"prompt": [1.5]}, 400, "prompt", "invalid_type"),
    ("c", {"prompt": [-1]}, 400, "prompt", "invalid_value"),
    ("c", {"prompt": [322]}, 400, "prompt", "invalid_value"),
    ("c", {"prompt": {"a": 1}}, 400, "prompt", "invalid_type"),
    ("c", {"prompt": "x" * 4096}, 400, "prompt", "context_length_exceeded"),
    ("c", {"prompt": ["a"] * 65, "n": 2}, 400, "prompt", "invalid_value"),
    ("c", {"model": "other"}, 404, "model", "model_not_found"),
    ("c", {"model": 5}, 400, "model", "invalid_type"),
    ("c", {"echo": True}, 400, "echo", "invalid_value"),
    ("c", {"suffix": "x"}, 400, "suffix", "invalid_value"),
    ("c", {"best_of": 3}, 400, "best_of", "invalid_value"),
    ("c", {"logprobs": True}, 400, "logprobs", "invalid_type"),
    ("c", {"logprobs": 21}, 400, "logprobs", "invalid_value"),
    ("c", {"max_tokens": 0}, 400, "max_tokens", "invalid_value"),
    ("c", {"max_tokens": "5"}, 400, "max_tokens", "invalid_type"),
    ("c", {"max_tokens": 5.0}, 400, "max_tokens", "invalid_type"),
    ("c", {"max_tokens": 2**40}, 400, "max_tokens", "invalid_value"),
    ("c", {"min_tokens": 9}, 400, "min_tokens", "invalid_value"),
    ("c", {"temperature": -0.1}, 400, "temperature", "invalid_value"),
    ("c", {"temperature": 2.1}, 400, "temperature", "invalid_value"),
    ("c", {"temperature": "1"}, 400, "temperature", "invalid_type"),
    ("c", {"temperature": True}, 400, "temperature", "invalid_type"),
    ("c", {"top_p": 1.1}, 400, "top_p", "invalid_value"),
    ("c", {"min_p": -1}, 400, "min_p", "invalid_value"),
    ("c", {"top_k": -2}, 400, "top_k", "invalid_value"),
    ("c", {"top_k": 1.5}, 400, "top_k", "invalid_type"),
    ("c", {"presence_penalty": 3}, 400, "presence_penalty", "invalid_value"),
    ("c", {"frequency_penalty": -3}, 400, "frequency_penalty", "invalid_value"),
    ("c", {"repetition_penalty": 0}, 400, "repetition_penalty", "invalid_value"),
    ("c", {"n": 0}, 400, "n", "invalid_value"),
    ("c", {"n": 129}, 400, "n", "invalid_value"),
    ("c", {"seed": "7"}, 400, "seed", "invalid_type"),
    ("c", {"seed": 1.5}, 400, "seed", "invalid_type"),
    ("c", {"stop": 5}, 400, "stop", "invalid_type"),
    ("c", {"stop": ["a", 5]}, 400, "stop", "invalid_type"),
    ("c", {"stop": ""}, 400, "stop", "invalid_value"),
    ("c", {"stop": ["x"] * 17}, 400, "stop", "invalid_value"),
    ("c", {"stream": 1}, 400, "stream", "invalid_type"),
    ("c", {"ignore_eos": "no"}, 400, "ignore_eos", "invalid_type"),
    ("c", {"logit_bias": []}, 400, "logit_bias", "invalid_type"),
    ("c", {"logit_bias": {"a": 1}}, 400, "logit_bias", "invalid_value"),
    ("c", {"logit_bias": {"-1": 1}}, 400, "logit_bias", "invalid_value"),
    ("c", {"logit_bias": {"99999999999": 1}}, 400, "logit_bias", "invalid_value"),
    ("c", {"logit_bias": {"400": 1}}, 400, "logit_bias", "invalid_value"),
    ("c", {"logit_bias": {"1": "x"}}, 400, "logit_bias", "invalid_type"),
    ("c", {"logit_bias": {"1": 101}}, 400, "logit_bias", "invalid_value"),
    ("c", {"stream_options": {"include_usage": True}}, 400, "stream_options", "invalid_value"),
    ("c", {"stream": True, "stream_options": 5}, 400, "stream_options", "invalid_type"),
    ("c", {"stream": True, "stream_options": {"include_usage": 5}}, 400, "stream_options.include_usage",
     "invalid_type"),
    ("c", {"trimtab_rule": "best"}, 400, "trimtab_rule", "invalid_value"),
    ("c", {"trimtab_rule": 5}, 400, "trimtab_rule", "invalid_type"),
    ("c", {"trimtab_rule": "coupled", "temperature": 0}, 400, "trimtab_rule", "invalid_value"),
    ("c", {"trimtab_rule": "greedy"}, 400, "trimtab_rule", "invalid_value"),
    ("h", {"messages": None}, 400, "messages", "invalid_value"),
    ("h", {"messages": []}, 400, "messages", "invalid_value"),
    ("h", {"messages": "hi"}, 400, "messages", "invalid_type"),
    ("h", {"messages": ["hi"]}, 400, "messages[0]", "invalid_type"),
    ("h", {"messages": [{"content": "x"}]}, 400, "messages[0].role", "invalid_value"),
    ("h", {"messages": [{"role": "king", "content": "x"}]}, 400, "messages[0].role", "invalid_value"),
    ("h", {"messages": MESSAGES + [{"role": "user", "content": 5}]}, 400, "messages[1].content", "invalid_type"),
    ("h", {"messages": [{"role": "user", "content": ["x"]}]}, 400, "messages[0].content[0]", "invalid_value"),
    ("h", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, 400,
     "messages[0].content[0]", "invalid_value"),
    ("h", {"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]}, 400, "messages[0].content[0]",
     "invalid_type"),
    ("h", {"messages": [{"role": "tool", "content": "x"}]}, 400, "messages", "chat_template"),
    ("h", {"messages": [{"role": "user", "content": "x" * 5000}]}, 400, "messages", "context_length_exceeded"),
    ("h", {"logprobs": 5}, 400, "logprobs", "invalid_type"),
    ("h", {"top_logprobs": 2}, 400, "top_logprobs", "invalid_value"),
    ("h", {"logprobs": True, "top_logprobs": 21}, 400, "top_logprobs", "invalid_value"),
    ("h", {"tools": [{"type": "function"}]}, 400, "tools", "invalid_value"),
    ("h", {"response_format": {"type": "json_object"}}, 400, "response_format", "invalid_value"),
    ("h", {"response_format": "text"}, 400, "response_format", "invalid_type"),
]


def test_errors(s):
    for place, change, status, param, code in BAD:
        good = {"prompt": "hi", "max_tokens": 2} if place == "c" else {"messages": MESSAGES, "max_tokens": 2}
        path = "/v1/completions" if place == "c" else "/v1/chat/completions"
        response, body = s.request("POST", path, good | change)
        error = body.get("error", {})
        equal(f"{path} {json.dumps(change)[:60]}", (response.status, error.get("param"), error.get("code"), sorted(error)),
              (status, param, code, ["code", "message", "param", "type"]))
    for body in (b"", b"{", b"[]", b"5", b'{"prompt":"\xff"}', b'{"prompt":"a\\u0000b"}', b"\x00", b'{"a":1}}',
                 b"[" * 100000, b'{"seed":99999999999999999999}'):
        response, answer = s.request("POST", "/v1/completions", body)
        equal(f"bad JSON {body[:20]!r}", (response.status, answer["error"]["code"]), (400, "invalid_json"))
    for method, path, status, allow in (
            ("GET", "/", 404, None), ("GET", "/v1", 404, None), ("POST", "/v1/embeddings", 404, None),
            ("GET", "/v1/completions", 405, "POST"), ("PUT", "/v1/models", 405, "GET, HEAD"),
            ("POST", "/health", 405, "GET, HEAD"), ("DELETE", "/api/v1/nodes/local/mode", 405, "PUT"),
            ("POST", "/api/v1/nodes/local/settings", 405, "GET, HEAD, PUT"), ("GET", "/api/v1/nodes/local", 404, None),
            ("GET", "/api/v1/nodes/x/snapshot", 404, None), ("GET", "/v1/models/none", 404, None),
            ("GET", "/api/v1/nodes//snapshot", 404, None), ("GET", "/" + "a" * 3000, 404, None)):
        response, body = s.request(method, path)
        equal(f"{method} {path[:40]}", (response.status, response.getheader("Allow")), (status, allow))
        check("  with an error object", "message" in body["error"], body)
    response, body = s.request("HEAD", "/health")
    equal("HEAD has no body", (response.status, body), (200, b""))
    response, body = s.request("GET", "/v1/models/echo-tiny")
    equal("one model", (response.status, body["id"]), (200, "echo-tiny"))


def raw(port, data, wait=5.0):
    """Everything the server sends for the bytes, until it closes or nothing came for a while."""
    with socket.create_connection(("127.0.0.1", port), timeout=wait) as connection:
        answer = b""
        try:
            connection.sendall(data)
            while True:
                part = connection.recv(65536)
                if not part:
                    break
                answer += part
        except OSError:
            pass
        return answer


def test_http(s):
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    answer = raw(s.port, head + b"Content-Length: 9000000\r\nExpect: 100-continue\r\n\r\n")
    check("413 before the body", answer.startswith(b"HTTP/1.1 413"), answer[:200])
    response, body = s.request("POST", "/v1/completions", b" " * 9000000)
    equal("413 after a large body", (response.status, body["error"]["code"]), (413, "body_too_large"))

    def parts():
        for _ in range(90):
            yield b" " * 100000
    status, body = chunked(s.port, parts())
    equal("413 of a body without a length", (status, body["error"]["code"]), (413, "body_too_large"))
    response, body = s.request("PUT", "/api/v1/nodes/local/mode", b" " * 70000)
    check("rights come before sizes", response.status == 403, body)
    answer = raw(s.port, b"GET /api/v1/nodes HTTP/1.1\r\nConnection: close\r\n\r\n")
    check("no Host header is a foreign one", answer.startswith(b"HTTP/1.1 403"), answer[:100])
    answer = raw(s.port, b"GET /health HTTP/1.0\r\n\r\n")
    check("HTTP/1.0 is answered", b" 200 OK" in answer.split(b"\r\n")[0], answer[:100])
    body = b'{"prompt":"hi","max_tokens":5,"stream":true}'
    answer = raw(s.port, b"POST /v1/completions HTTP/1.0\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    check("a stream in HTTP/1.0 ends by closing", answer.endswith(b"data: [DONE]\n\n"), answer[-100:])
    connection = http.client.HTTPConnection("127.0.0.1", s.port, timeout=10)
    statuses = []
    for _ in range(3):
        for body in ('{"prompt":"hi","max_tokens":1}', '{"prompt":5}', '{"prompt":"hi","max_tokens":9,"stream":true}'):
            connection.request("POST", "/v1/completions", body)
            response = connection.getresponse()
            response.read()
            statuses.append(response.status)
        connection.request("POST", "/nowhere", "x" * 1000)
        response = connection.getresponse()
        response.read()
        statuses.append(response.status)
    connection.close()
    equal("one connection serves them all", statuses, [200, 400, 200, 404] * 3)
    # a request that arrives byte by byte
    body = b'{"prompt":"hi","max_tokens":3}'
    with socket.create_connection(("127.0.0.1", s.port), timeout=10) as slow:
        slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in head + b"Content-Length: %d\r\n\r\n" % len(body) + body:
            slow.send(bytes([byte]))
        answer = b""
        while part := slow.recv(65536):
            answer += part
    check("a request byte by byte", answer.startswith(b"HTTP/1.1 200"), answer[:100])
    for garbage in (b"\r\n\r\n", b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
                    b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 100000 + b"\r\n\r\n"):
        raw(s.port, garbage, wait=0.3)
    equal("alive after garbage", s.request("GET", "/health")[0].status, 200)


def chunked(port, parts):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("POST", "/v1/completions", parts, encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
    response = connection.getresponse()
    body = json.loads(response.read())
    connection.close()
    return response.status, body


def open_stream(s, body, path="/v1/completions", receive_buffer=None):
    """A connection whose request was sent and of which nothing was read."""
    connection = socket.socket()
    connection.settimeout(20)
    if receive_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.connect(("127.0.0.1", s.port))
    text = json.dumps(body).encode()
    connection.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(text)) + text)
    return connection


def test_hang_up(s):
    s.tell("hold 1")
    for name, body in (("a stream", {"prompt": "a", "stream": True}), ("a whole answer", {"prompt": "a"}),
                       ("eight choices", {"prompt": ["a", "b"], "n": 4, "stream": True})):
        before = s.counts()
        connection = open_stream(s, body)
        wanted = 8 if "n" in body else 1
        check(f"{name} runs", wait_for(lambda: s.counts()["live"] == wanted), s.counts())
        connection.close()
        check(f"{name} is cancelled when its client leaves",
              wait_for(lambda: s.counts()["cancelled"] == before["cancelled"] + wanted and s.counts()["live"] == 0),
              s.counts())
    s.tell("hold 0")
    s.tell("delay 1000")
    before = s.counts()
    connection = open_stream(s, {"prompt": "a", "stream": True, "max_tokens": 100000, "ignore_eos": True})
    connection.recv(2000)
    connection.close()
    check("a stream that was being read, too",
          wait_for(lambda: s.counts()["cancelled"] == before["cancelled"] + 1), s.counts())
    s.tell("delay 0")


def test_slow_reader(s):
    connection = open_stream(s, {"prompt": "a", "stream": True, "max_tokens": 30000, "ignore_eos": True,
                                 "stream_options": {"include_usage": True}})
    check("a slow reader does not hold the node", wait_for(lambda: s.counts()["live"] == 0, 10), s.counts())
    response = http.client.HTTPResponse(connection)
    response.begin()
    events = events_of(response.read())
    equal("and gets everything later", (events[-1], events[-2]["usage"]["completion_tokens"]), ("[DONE]", 30000))
    check("nothing is lost or doubled",
          sum(len(e["choices"][0]["text"]) for e in events[:-2]) > 100000)
    connection.close()
    before = s.counts()
    connection = open_stream(s, {"prompt": "a", "stream": True, "max_tokens": 2000000, "ignore_eos": True})
    time.sleep(0.2)
    connection.close()
    check("a slow reader that leaves is noticed",
          wait_for(lambda: s.counts()["cancelled"] == before["cancelled"] + 1), s.counts())


def test_concurrent(s):
    s.tell("delay 500")
    wanted, got, errors = {}, {}, []
    for i in range(48):
        wanted[i] = s.request("POST", "/v1/completions", {"prompt": f"p{i}", "max_tokens": 60})[1]["choices"][0]["text"]

    def one(i):
        try:
            _, events = s.stream("/v1/completions", {"prompt": f"p{i}", "max_tokens": 60})
            got[i] = "".join(e["choices"][0]["text"] for e in events[:-1])
        except Exception as error:
            errors.append(repr(error))
    threads = [threading.Thread(target=one, args=(i,)) for i in range(48)]
    start = time.monotonic()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    check("48 streams at once", got == wanted and not errors, errors[:3])
    check("none waits for another", time.monotonic() - start < 10)
    s.tell("delay 0")


def test_failures(s):
    s.tell("full 1")
    response, body = s.request("POST", "/v1/completions", {"prompt": "a"})
    equal("a full queue", (response.status, response.getheader("Retry-After"), body["error"]["code"]),
          (503, "1", "queue_full"))
    response, body = s.request("POST", "/v1/completions", {"prompt": "a", "stream": True})
    equal("a full queue before a stream", (response.status, body["error"]["type"]), (503, "server_error"))
    s.tell("full 0")
    s.tell("fail 4")
    response, body = s.request("POST", "/v1/completions", {"prompt": "a"})
    equal("a failure", (response.status, body["error"]["code"]), (500, "generation_failed"))
    s.tell("fail 4")
    _, events = s.stream("/v1/completions", {"prompt": "a"})
    equal("a failure in a stream", (events[-2]["error"]["message"], events[-1]),
          ("the model produced no finite logits", "[DONE]"))
    s.tell("delay 2000")
    s.tell("fail 4")
    before = s.counts()
    _, events = s.stream("/v1/completions", {"prompt": ["a", "b"], "max_tokens": 100000, "ignore_eos": True})
    check("one choice's failure ends the stream", "error" in events[-2], events[-2:])
    check("and cancels the other", wait_for(lambda: s.counts()["cancelled"] == before["cancelled"] + 1), s.counts())
    s.tell("delay 0")
    s.tell("health starting")
    response, _ = s.request("GET", "/health")
    equal("starting is not healthy", response.status, 503)
    response, body = s.request("POST", "/v1/completions", {"prompt": "a"})
    equal("a model that is being loaded", (response.status, body["error"]["code"]), (503, "starting"))
    s.tell("health degraded")
    equal("degraded still serves", s.request("GET", "/health")[0].status, 200)
    s.tell("health ok")


def put(s, path, body, token=None, **headers):
    if token:
        headers["Authorization"] = "Bearer " + token
    return s.request("PUT", path, body, headers)


def test_control(s, t):
    path = "/api/v1/nodes/local/"
    response, body = put(s, path + "mode", {"mode": "adaptive", "expect_generation": 0, "reason": "try"}, t)
    equal("the mode is set", (response.status, body), (200, {"mode": "adaptive", "generation": 1}))
    response, body = put(s, path + "mode", {"mode": "off", "expect_generation": 0}, t)
    equal("a stale generation is a conflict", (response.status, body["generation"], body["error"]["code"]),
          (409, 1, "generation_conflict"))
    equal("and changed nothing", s.request("GET", path + "snapshot", headers=bearer(t))[1]["mode"], "adaptive")
    for change in ({}, {"mode": 5}, {"mode": "on"}, {"mode": "off", "expect_generation": "1"},
                   {"mode": "off", "expect_generation": -1}, {"mode": "off", "reason": 5},
                   {"mode": "off", "reason": "x" * 401}, [], 5):
        response, body = put(s, path + "mode", change, t)
        equal(f"refused: {json.dumps(change)[:40]}", response.status, 400)
    response, body = put(s, path + "settings", {"max_draft": 4, "expect_generation": 1}, t)
    equal("a setting", (response.status, body["max_draft"], body["generation"], body["schema"]),
          (200, 4, 2, "trimtab.settings/1"))
    equal("who did it", (body["last_who"], body["last_origin"]), ("write token", "tcp 127.0.0.1"))
    for change, status in (({"max_draft": 40}, 400), ({"max_draft": "4"}, 400), ({"colour": 1}, 400), ({}, 400),
                           ({"max_draft": 3, "colour": 1}, 400), ({"exploration": 1}, 400),
                           ({"max_draft": 3, "expect_generation": 1}, 409)):
        response, body = put(s, path + "settings", change, t)
        equal(f"settings {json.dumps(change)}", response.status, status)
    for name, schema, key in (("requests", "requests", list), ("cost", "verify", list), ("calibration", "strata", list),
                              ("settings", "max_draft", int)):
        response, body = s.request("GET", path + name, headers=bearer(t))
        check(f"GET {name}", response.status == 200 and body["schema"] == f"trimtab.{name}/1" and
              isinstance(body[schema], key), body)
    s.tell("hold 1")
    connection = open_stream(s, {"prompt": "a", "stream": True})
    check("a request is listed", wait_for(lambda: len(s.request("GET", path + "requests", headers=bearer(t))[1]["requests"]) == 1))
    number = s.request("GET", path + "requests", headers=bearer(t))[1]["requests"][0]["id"]
    response, body = s.request("DELETE", path + f"requests/{number}", headers=bearer(t))
    equal("an operator cancels it", (response.status, body), (200, {"id": number, "cancelled": True}))
    stream = http.client.HTTPResponse(connection)
    stream.begin()
    events = events_of(stream.read())
    equal("its client is told", (events[-2]["error"]["code"], events[-1]), ("cancelled", "[DONE]"))
    connection.close()
    s.tell("hold 0")
    for number, status in (("99999", 404), ("abc", 400), ("-1", 400), ("18446744073709551616", 400)):
        equal(f"DELETE {number}", s.request("DELETE", path + f"requests/{number}", headers=bearer(t))[0].status, status)
    for query, status in (("interval_ms=100", 400), ("interval_ms=x", 400), ("interval_ms=60001", 400)):
        equal(f"stream?{query}", s.request("GET", path + "stream?" + query, headers=bearer(t))[0].status, status)


def bearer(token):
    return {"Authorization": "Bearer " + token} if token else {}


def test_snapshot_stream(s):
    connection = socket.create_connection(("127.0.0.1", s.port), timeout=5)
    start = time.monotonic()
    connection.sendall(b"GET /api/v1/nodes/local/stream?interval_ms=200 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    data, times = b"", []
    while data.count(b"\n\n") < 5:
        data += connection.recv(65536)
        while len(times) < data.count(b"\n\n"):
            times.append(time.monotonic() - start)
    connection.close()
    check("the first snapshot comes at once", times[0] < 0.19, times)
    check("then one every 200 ms", 0.7 < times[4] < 3, times)


def test_metrics(s):
    s.tell("drafted 40")
    response, text = s.request("GET", "/metrics")
    equal("metrics' type", response.getheader("Content-Type"), "text/plain; version=0.0.4; charset=utf-8")
    types, values, helped, ends = {}, {}, set(), {}
    for line in text.decode().splitlines():
        if line.startswith("# HELP "):
            helped.add(line.split()[2])
            continue
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            check(f"{name} has help and one type", name in helped and name not in types and kind in ("counter", "gauge", "histogram"))
            types[name] = kind
            continue
        match = re.fullmatch(r'([a-z0-9_:]+)\{((?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)*)\} ([-+0-9.e]+)', line)
        family = re.sub("_(bucket|sum|count)$", "", match[1]) if match else ""
        if not match or match[1] not in types and types.get(family) != "histogram":
            check("a line of metrics", False, line)
            continue
        values[(match[1], match[2])] = float(match[3])
    base = 'model_name="echo-tiny",engine="0"'
    own = base + ',node="local"'
    equal("drafts", values[("vllm:spec_decode_num_drafts_total", base)], 20)
    equal("draft tokens", values[("vllm:spec_decode_num_draft_tokens_total", base)], 40)
    equal("accepted at a position",
          values[("vllm:spec_decode_num_accepted_tokens_per_pos_total", base + ',position="0"')], 7)
    equal("the slope", values[("trimtab_slope", own)], 0.552)
    equal("the predicted step in seconds", values[("trimtab_predicted_step_seconds", own)], 0.0235)
    equal("the cost table's error and bias",
          [values[("trimtab_cost_error_ratio", own)], values[("trimtab_cost_bias_ratio", own)]], [0.04, -0.01])
    equal("the mode is a state set", sorted(v for (n, _), v in values.items() if n == "trimtab_mode"), [0, 0, 0, 1])
    equal("a cost cell in seconds",
          values[("trimtab_cost_seconds", own + ',part="verify",size="8",context_band="0"')], 0.0205)
    for name in ("vllm:time_to_first_token_seconds", "vllm:e2e_request_latency_seconds"):
        buckets = [v for (n, _), v in values.items() if n == name + "_bucket"]
        check(f"{name} is cumulative", buckets == sorted(buckets) and buckets[-1] == values[(name + "_count", base)] > 0,
              buckets)
    ends = {reason: values[("vllm:request_success_total", f'{base},finished_reason="{reason}"')]
            for reason in ("stop", "length", "abort", "error")}
    check("every kind of end was seen", all(ends.values()), ends)
    equal("and every request has one", sum(ends.values()), s.counts()["submitted"])
    check("unknown is absent", "trimtab_step_seconds" not in types and
          ("vllm:spec_decode_num_accepted_tokens_per_pos_total", base + ',position="1"') not in values)


def unix_request(path, method, target, body=None, headers=""):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        connection.connect(path)
        body = json.dumps(body).encode() if body is not None else b""
        connection.sendall(f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}"
                           f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = b""
        while part := connection.recv(65536):
            answer += part
        return int(answer.split()[1])


def test_rights(folder):
    key, read, write = (os.path.join(folder, n) for n in ("key", "read", "write"))
    for path, text in ((key, "key-1\nkey-2\n"), (read, "reader"), (write, "writer\n")):
        with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
            file.write(text)
    sock = os.path.join(folder, "s.sock")
    mode, nodes = "/api/v1/nodes/local/mode", "/api/v1/nodes"
    s = Server("--listen", "127.0.0.1:0", "--socket", sock, "--host-names", "gate.example, other.example")
    equal("the socket's mode", oct(os.stat(sock).st_mode & 0o777), "0o600")
    equal("reading on loopback needs nothing", s.request("GET", nodes)[0].status, 200)
    equal("and says that it is read-only", s.request("GET", nodes)[1]["read_only"], True)
    response, body = put(s, mode, {"mode": "off"})
    equal("writing over TCP without a token file", (response.status, body["error"]["type"]), (403, "permission_error"))
    equal("writing as the socket's owner", unix_request(sock, "PUT", mode, {"mode": "off"}), 200)
    for host, status in (("localhost", 200), ("127.0.0.1:%d" % s.port, 200), ("[::1]:80", 200), ("LOCALHOST.", 200),
                         ("evil.example", 403), ("127.0.0.1.evil.example", 403), ("localhost.evil", 403), ("", 403),
                         ("[::1", 403), ("gate.example:80", 200), ("OTHER.example", 200)):
        equal(f"Host {host!r}", s.request("GET", nodes, headers={"Host": host})[0].status, status)
    equal("a foreign Host at /v1", s.request("GET", "/v1/models", headers={"Host": "evil.example"})[0].status, 403)
    equal("a foreign Host at /health", s.request("GET", "/health", headers={"Host": "evil.example"})[0].status, 200)
    for origin in ("http://evil.example", "http://localhost", "null"):
        equal(f"Origin {origin}", [s.request("GET", p, headers={"Origin": origin})[0].status
                                   for p in (nodes, "/v1/models", "/metrics")], [403, 403, 403])
        equal("  on the socket, too", unix_request(sock, "GET", nodes, headers=f"Origin: {origin}\r\n"), 403)
    if os.geteuid() == 0:
        os.chmod(folder, 0o755)
        os.chmod(sock, 0o666)
        for body, target, method, wanted in ((None, nodes, "GET", 200), ({"mode": "off"}, mode, "PUT", 403)):
            child = os.fork()
            if child == 0:
                os.setuid(65534)
                os._exit(0 if unix_request(sock, method, target, body) == wanted else 1)
            equal(f"another user: {method}", os.waitpid(child, 0)[1], 0)
    else:
        skip("another user on the socket", "needs root")
    equal("it stops", s.quit(), 0)
    check("and its socket is gone", not os.path.exists(sock))

    s = Server("--listen", "127.0.0.1:0", "--api-key-file", key, "--read-token-file", read, "--token-file", write)
    for path, token, status in (("/v1/models", None, 401), ("/v1/models", "key-1", 200), ("/v1/models", "key-2", 200),
                                ("/v1/models", "key-", 401), ("/v1/models", "key-11", 401), ("/v1/models", "writer", 401),
                                (nodes, None, 401), (nodes, "reader", 200), (nodes, "writer", 200), (nodes, "key-1", 401),
                                ("/metrics", None, 401), ("/metrics", "reader", 200), ("/health", None, 200),
                                ("/version", None, 200)):
        response, body = s.request("GET", path, headers=bearer(token))
        equal(f"{path} with {token}", response.status, status)
        if status == 401:
            equal("  names the scheme", response.getheader("WWW-Authenticate"), "Bearer")
    response, body = s.request("POST", "/v1/completions", {"prompt": "a"})
    equal("a wrong key", (response.status, body["error"]["code"]), (401, "invalid_api_key"))
    for token, status in ((None, 401), ("reader", 403), ("key-1", 401), ("writer", 200), ("write", 401)):
        equal(f"PUT mode with {token}", put(s, mode, {"mode": "off"}, token)[0].status, status)
    equal("read_only is the caller's own", [s.request("GET", nodes, headers=bearer(t))[1]["read_only"]
                                           for t in ("reader", "writer")], [True, False])
    equal("a keyed /v1 takes any Host and Origin",
          s.request("GET", "/v1/models", headers=bearer("key-1") | {"Host": "x", "Origin": "http://x"})[0].status, 200)
    equal("a token does not open the control API to pages",
          s.request("GET", nodes, headers=bearer("writer") | {"Origin": "http://x"})[0].status, 403)
    with open(write, "w") as file:
        file.write("fresh")
    equal("reload", s.tell("reload"), "ok")
    equal("the new token counts", [put(s, mode, {"mode": "off"}, t)[0].status for t in ("writer", "fresh")], [401, 200])
    os.chmod(write, 0o644)
    check("a token file that others may read is refused", "chmod 600" in s.tell("reload"))
    equal("and the tokens stay", put(s, mode, {"mode": "off"}, "fresh")[0].status, 200)
    os.chmod(write, 0o600)
    test_control_restart = Server("--listen", "127.0.0.1:0", "--token-file", write)
    test_control(test_control_restart, "fresh")
    equal("control server stops", test_control_restart.quit(), 0)
    equal("it stops", s.quit(), 0)

    s = Server("--listen", "0.0.0.0:0", "--token-file", write)
    equal("a public listener asks for the token everywhere",
          [s.request("GET", p)[0].status for p in (nodes, "/metrics", "/v1/models", "/health")], [401, 401, 401, 200])
    equal("and takes it", [s.request("GET", p, headers=bearer("fresh"))[0].status
                           for p in (nodes, "/metrics", "/v1/models")], [200, 200, 200])
    equal("a name that is not ours", s.request("GET", nodes, headers=bearer("fresh") | {"Host": "evil.example"})[0].status, 403)
    equal("it stops", s.quit(), 0)


def test_starts(folder):
    def error(*arguments):
        return Server(*arguments).error or "started"
    first = Server("--listen", "127.0.0.1:0,127.0.0.1:0")
    equal("two listeners", len(set(first.ports)), 2)
    equal("both answer", [first.request("GET", "/health", port=p)[0].status for p in first.ports], [200, 200])
    check("a taken port is named", "is taken" in (e := error("--listen", f"127.0.0.1:{first.port}")), e)
    check("a public address needs a token", "--token-file" in (e := error("--listen", "0.0.0.0:0")), e)
    for address in ("127.0.0.1", "127.0.0.1:", ":99999", "127.0.0.1:http", "::1:80", "[::1]80", "a b:1", "300.1.1.1:80"):
        check(f"not an address: {address}", "listen address" in (e := error("--listen", address)), e)
    first.quit()
    sock = os.path.join(folder, "d", "x.sock")
    a = Server("--socket", sock)
    check("a daemon on the socket is named", str(a.process.pid) in (e := error("--socket", sock)), e)
    check("and still there", os.path.exists(sock))
    a.process.kill()
    a.process.wait()
    b = Server("--socket", sock)
    check("a stale socket is replaced", not b.error and unix_request(sock, "GET", "/health") == 200, b.error)
    b.quit()
    with open(sock, "w") as file:
        file.write("precious")
    check("a file in the socket's place stays", "not a socket" in error("--socket", sock))
    equal("untouched", open(sock).read(), "precious")
    check("a socket path that is too long", "longer than" in error("--socket", "/tmp/" + "x" * 120))
    for text, mode, words in (("", 0o600, "is empty"), ("a b", 0o600, "without spaces"), ("x", 0o644, "chmod 600"),
                              ("x" * 300, 0o600, "longer than"), ("x\n" * 17, 0o600, "more than")):
        path = os.path.join(folder, "token")
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, mode)
        check(f"token file: {words}", words in (e := error("--token-file", path)), e)
    check("token file: missing", "No such file" in error("--token-file", folder + "/none"))
    check("token file: a folder", "not a regular file" in error("--token-file", folder))


def test_stop():
    s = Server("--listen", "127.0.0.1:0")
    s.tell("hold 1")
    stream, whole = open_stream(s, {"prompt": "a", "stream": True, "n": 3}), open_stream(s, {"prompt": "a"})
    snapshots = socket.create_connection(("127.0.0.1", s.port), timeout=5)
    snapshots.sendall(b"GET /api/v1/nodes/local/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
    check("all run", wait_for(lambda: s.counts()["live"] == 4), s.counts())
    s.tell("drain")
    response, body = s.request("POST", "/v1/completions", {"prompt": "a"})
    equal("draining refuses", (response.status, body["error"]["code"]), (503, "draining"))
    check("with Retry-After", response.getheader("Retry-After"))
    equal("and is not healthy", s.request("GET", "/health")[0].status, 503)
    equal("what runs goes on", s.counts()["live"], 4)
    start = time.monotonic()
    equal("it stops with streams open", s.quit(), 0)
    check("at once", time.monotonic() - start < 5, time.monotonic() - start)
    response = http.client.HTTPResponse(stream)
    response.begin()
    events = events_of(response.read())
    equal("a stream is told", (events[-2]["error"]["code"], events[-1]), ("shutting_down", "[DONE]"))
    response = http.client.HTTPResponse(whole)
    response.begin()
    equal("a whole answer becomes 503", (response.status, json.loads(response.read())["error"]["code"]),
          (503, "shutting_down"))
    for connection in (stream, whole, snapshots):
        connection.close()


def memory_kib(s):
    with open(f"/proc/{s.process.pid}/status") as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["VmRSS"].split()[0]), int(fields["VmSize"].split()[0])


def test_first_bytes(s):
    """Each step reaches the client by itself: nothing is held back for a fuller packet."""
    s.tell("delay 20000")
    connection = open_stream(s, {"prompt": "a", "stream": True, "max_tokens": 24})
    parts = []
    while not parts or b"[DONE]" not in parts[-1]:
        parts.append(connection.recv(65536))
    connection.close()
    check("steps arrive one by one", len(parts) >= 8, len(parts))
    s.tell("delay 0")


def test_storm(s):
    """Clients that leave at any moment, many at once: nobody else suffers and nothing stays behind."""
    s.tell("delay 300")
    errors, whole = [], []

    def one(number):
        random = number * 2654435761 % 2**32
        body = {"prompt": f"{number}", "max_tokens": 30, "stream": number % 3 != 0, "n": 1 + number % 3}
        try:
            connection = open_stream(s, body)
            if number % 4 == 0:  # stays to the end
                response = http.client.HTTPResponse(connection)
                response.begin()
                text = response.read()
                whole.append(events_of(text)[-1] == "[DONE]" if body["stream"] else len(json.loads(text)["choices"]) == body["n"])
            else:
                time.sleep(random % 25 / 1000)
                if random % 2:
                    connection.recv(random % 3000 + 1)
            connection.close()
        except Exception as error:
            errors.append(repr(error))
    for _ in range(3):
        threads = [threading.Thread(target=one, args=(i,)) for i in range(80)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    check("a storm of clients that leave", not errors and len(whole) == 60 and all(whole), errors[:3])
    check("leaves nothing running", wait_for(lambda: s.counts()["live"] == 0), s.counts())
    s.tell("delay 0")


def test_limits():
    s = Server("--listen", "127.0.0.1:0", "--max-connections", "4", "--idle-timeout", "1")
    s.tell("hold 1")
    held = [open_stream(s, {"prompt": "a", "stream": True}) for _ in range(4)]
    check("the allowed connections run", wait_for(lambda: s.counts()["live"] == 4))
    late = open_stream(s, {"prompt": "a", "max_tokens": 2})
    time.sleep(0.3)
    equal("one more waits", s.counts()["submitted"], 4)
    held.pop().close()
    check("until one leaves", wait_for(lambda: s.counts()["submitted"] == 5), s.counts())
    time.sleep(1.6)
    equal("those who wait for text are not idle", s.counts()["live"], 4)
    s.tell("hold 0")
    response = http.client.HTTPResponse(late)
    response.begin()
    equal("and get it", response.status, 200)
    for connection in held + [late]:
        connection.close()
    check("all end", wait_for(lambda: s.counts()["live"] == 0), s.counts())
    before = s.counts()["cancelled"]
    s.tell("delay 100")  # the text would last for minutes; with logprobs it soon fills the buffers between
    stuck = open_stream(s, {"prompt": "a", "stream": True, "max_tokens": 5000000, "ignore_eos": True, "logprobs": 20},
                        receive_buffer=4096)
    check("a reader that is stuck is dropped", wait_for(lambda: s.counts()["cancelled"] == before + 1, 15), s.counts())
    stuck.close()
    equal("limits: a clean exit", s.quit(), 0)


def test_documented():
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "api.md")) as file:
        text = file.read()
    for line in subprocess.run([PROGRAM, "--routes"], capture_output=True, text=True).stdout.splitlines():
        method, path = line.split()
        path = re.sub(r"^/api/v1/nodes/\{\}/", "…/nodes/{id}/", path).replace("/requests/{}", "/requests/{request}")
        path = path.replace("/v1/models/{}", "/v1/models/{model}")
        check(f"docs/api.md has {method} {path}", f"{method} {path}`" in text or f"{method} {path}?" in text or
              (method == "POST" and f"`{path}`" in text))


def test_memory(s):
    def burst(number):
        connection = http.client.HTTPConnection("127.0.0.1", s.port, timeout=20)
        for i in range(number):
            connection.request("POST", "/v1/completions", json.dumps(
                {"prompt": "a" * 500, "max_tokens": 20, "stream": i % 2 == 0, "logprobs": 5, "stop": ["zz"]}))
            connection.getresponse().read()
        connection.close()
    burst(200)
    before, virtual = memory_kib(s)
    burst(800)
    after, _ = memory_kib(s)
    if virtual > 1 << 30:
        skip("constant memory over requests", "a sanitizer's allocator keeps freed memory; its leak check runs at exit")
    else:
        check("constant memory over requests", after - before < 1024, f"{before} KiB before, {after} KiB after")


def main():
    with tempfile.TemporaryDirectory() as folder:
        s = Server("--listen", "127.0.0.1:0")
        for test in (test_completions, test_chat, test_streams, test_logprobs, test_params, test_errors, test_http,
                     test_hang_up, test_slow_reader, test_concurrent, test_storm, test_failures, test_snapshot_stream, test_first_bytes,
                     test_metrics, test_memory):
            test(s)
        equal("nothing is left running", s.counts()["live"], 0)
        equal("a clean exit", s.quit(), 0)
        test_rights(folder)
        test_starts(folder)
        test_stop()
        test_limits()
        test_documented()
    print(f"1..{count}")
    sys.exit(1 if failed else 0)


main()
