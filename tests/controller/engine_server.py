"""A stand-in for many engines behind one port, for the tests of the vllm node: each path prefix is one engine, and its
name says how it behaves. Pages of metrics are real ones (data/vllm) whose counters grow with the clock.

usage: engine_server.py PORT-FILE DATA-FOLDER

  /ok…        vLLM 0.32.0 with n-gram drafts: 40 drafts a second, K = 4
  /restart…   the same, and after its 8th page its counters begin anew
  /pause…     the same, and from its 5th page on it is away for 9 s, while its counters grow
  /nospec…    vLLM without speculation
  /dp…        two data parallel engines
  /broken…    positions behind the first accept nothing
  /llama…     llama-server; a request ends every 7 s, and only then its counters move
  /key…       /v1 wants the key "s3cret"
  /guarded…   every path wants it
  /slow…      answers after 20 s
  /drip…      sends a byte every 2 s
  /garbage…   bytes that are no page
  /html…      a page for people
  /cut…       promises more than it sends
  /half…      a whole answer whose last line is not
  /huge…      sends without an end
  /redirect…  302 to /ok0
  /error…     500
  /gone…      closes the connection without an answer
  /ill…       /health is 503
"""

import asyncio
import os
import re
import sys
import time

port_file, data = sys.argv[1:3]
DRAFTS_A_SECOND = 40
start = time.monotonic()


def body_of(name):
    with open(os.path.join(data, name + ".resp"), "rb") as file:
        return file.read().partition(b"\r\n\r\n")[2]


pages = {name: body_of(name) for name in ("ngram-k4-before", "nospec", "dp2-k3-after")}
version, models = body_of("version"), body_of("v1_models")


def grow(page, amounts):
    """Adds to the samples whose line begins so: [(bytes, amount)]."""
    for head, amount in amounts:
        def add(found, amount=amount):
            return found.group(1) + str(float(found.group(2)) + amount).encode()
        page = re.sub(rb"(?m)^(" + re.escape(head) + rb"(?:\{[^}]*\})? )([0-9.e+]+)$", add, page)
    return page


def vllm_page(drafts, accept):
    """The captured page after so many further drafts, of which accept[k] survive at position k."""
    at = [int(drafts * part) for part in accept]
    position = b'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="smollm2-135m",position="%d"}'
    amounts = [
        (b"vllm:spec_decode_num_drafts_total", drafts),
        (b"vllm:spec_decode_num_draft_tokens_total", 4 * drafts),
        (b"vllm:spec_decode_num_accepted_tokens_total", sum(at)),
        (b"vllm:generation_tokens_total", drafts + sum(at)),
        (b"vllm:iteration_tokens_total_count", drafts // 2),
    ]
    page = grow(pages["ngram-k4-before"], amounts)
    for k, amount in enumerate(at):
        page = re.sub(rb"(?m)^(" + re.escape(position % k) + rb" )([0-9.]+)$",
                      lambda found, more=amount: found.group(1) + str(float(found.group(2)) + more).encode(), page)
    return page


def llama_page(seconds):
    ended = int(seconds / 7)
    return (f"# TYPE llamacpp:tokens_predicted_total counter\nllamacpp:tokens_predicted_total {700 * ended}\n"
            f"# TYPE llamacpp:spec_decode_num_drafts_total counter\nllamacpp:spec_decode_num_drafts_total {350 * ended}\n"
            f"# TYPE llamacpp:spec_decode_num_draft_tokens_total counter\n"
            f"llamacpp:spec_decode_num_draft_tokens_total {700 * ended}\n"
            f"# TYPE llamacpp:spec_decode_num_accepted_tokens_total counter\n"
            f"llamacpp:spec_decode_num_accepted_tokens_total {350 * ended}\n"
            f"# TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing 1\n").encode()


cache = {}


def page_now(kind, make):
    """One page a kind and quarter of a second, however many engines there are."""
    tick = int((time.monotonic() - start) * 4)
    if cache.get(kind, (None,))[0] != tick:
        cache[kind] = (tick, make(tick / 4))
    return cache[kind][1]


served, away = {}, {}


def metrics(name):
    kind = re.match(r"[a-z]+", name).group()
    if kind == "restart":
        served[name] = served.get(name, 0) + 1
        if served[name] > 8:
            return vllm_page(0, (0.7, 0.6, 0.5, 0.4)).replace(b"1.79600005774", b"1.79600105774")
    if kind == "broken":
        return page_now(kind, lambda s: vllm_page(int(s * 10 * DRAFTS_A_SECOND), (0.7, 0, 0, 0)))
    if kind == "nospec":
        return pages["nospec"]
    if kind == "dp":
        return pages["dp2-k3-after"]
    if kind == "llama":
        return page_now(kind, llama_page)
    if kind == "garbage":
        return os.urandom(3000) + b"\n"
    if kind == "html":
        return b"<html><body>It works!</body></html>\n"
    page = page_now("ok", lambda s: vllm_page(int(s * DRAFTS_A_SECOND), (0.7, 0.6, 0.5, 0.4)))
    return page[: len(page) // 2] if kind == "half" else page


def answer(name, path, key):
    """(status, body) of an ordinary answer."""
    kind = re.match(r"[a-z]+", name).group()
    wants_key = kind == "guarded" or (kind == "key" and path.startswith("/v1"))
    if wants_key and key != "Bearer s3cret":
        return 401, b'{"error":"Unauthorized"}'
    if kind == "pause" and path == "/metrics":
        served[name] = served.get(name, 0) + 1
        if served[name] == 5:
            away[name] = time.monotonic() + 9
    if kind == "error" or time.monotonic() < away.get(name, 0):
        return 500, b"Internal Server Error"
    if path == "/metrics":
        return 200, metrics(name)
    if path == "/health":
        return (503 if kind == "ill" else 200), b""
    if kind == "llama" or path not in ("/version", "/v1/models"):
        return 404, b'{"detail":"Not Found"}'
    return 200, version if path == "/version" else models


async def serve(reader, writer):
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            name, _, rest = head.split(" ")[1].lstrip("/").partition("/")
            key = re.search(r"(?im)^authorization: (.*?)\r?$", head)
            kind = re.match(r"[a-z]*", name).group()
            if kind == "slow":
                await asyncio.sleep(20)
            if kind == "gone":
                return
            if kind == "drip":
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                for _ in range(1000):
                    writer.write(b"#")
                    await writer.drain()
                    await asyncio.sleep(2)
                return
            if kind == "huge":
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
                while True:
                    writer.write(b"# " + b"x" * 65536 + b"\n")
                    await writer.drain()
            if kind == "redirect":
                writer.write(b"HTTP/1.1 302 Found\r\nLocation: /ok0/metrics\r\nContent-Length: 0\r\n\r\n")
                continue
            status, body = answer(name, "/" + rest, key and key.group(1))
            length = len(body) + (5000 if kind == "cut" else 0)
            writer.write(f"HTTP/1.1 {status} X\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n".encode())
            writer.write(body)
            await writer.drain()
            if kind == "cut":
                return
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1024)
    with open(port_file + ".new", "w", encoding="ascii") as file:
        file.write(str(server.sockets[0].getsockname()[1]))
    os.rename(port_file + ".new", port_file)
    await server.serve_forever()


asyncio.run(main())
