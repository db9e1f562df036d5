"""The openai client against a live trimtabd: what a program that was written for that API relies on. Speaks TAP.

usage: openai_client.py URL KEY
"""

import asyncio
import sys
import time
import traceback

import openai

URL, KEY = sys.argv[1:]
client = openai.OpenAI(base_url=URL + "/v1", api_key=KEY, max_retries=0, timeout=120)
MODEL = client.models.list().data[0].id
QUESTION = [{"role": "user", "content": "Name three fruits and say what colour each has."}]
tests = []


def test(function):
    tests.append(function)
    return function


def chat(**options):
    options = {"model": MODEL, "messages": QUESTION, "max_tokens": 24, "temperature": 0, **options}
    return client.chat.completions.create(**options)


def complete(prompt="The capital of France is", **options):
    options = {"model": MODEL, "prompt": prompt, "max_tokens": 16, "temperature": 0, **options}
    return client.completions.create(**options)


def equal(got, expected):
    assert got == expected, f"got {got!r}, expected {expected!r}"


def refused(kind, param, call, *args, **options):
    try:
        call(*args, **options)
    except kind as error:
        assert error.message and error.body["message"], "an error without a message"
        assert param is None or error.body["param"] == param, f"param {error.body['param']!r}, expected {param!r}"
        return error
    raise AssertionError(f"not refused with {kind.__name__}")


@test
def models_are_listed():
    page = client.models.list()
    equal(page.object, "list")
    equal(page.data[0].object, "model")
    assert page.data[0].id


@test
def chat_answers_with_usage_and_finish_reason():
    answer = chat(max_tokens=200)
    equal(answer.object, "chat.completion")
    equal(answer.model, MODEL)
    choice = answer.choices[0]
    equal(choice.message.role, "assistant")
    assert choice.message.content.strip(), "no text"
    assert choice.finish_reason in ("stop", "length")
    usage = answer.usage
    assert usage.prompt_tokens > 10 and usage.completion_tokens > 0
    equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)


@test
def max_tokens_and_its_newer_name_are_obeyed():
    for options in ({"max_tokens": 5}, {"max_tokens": None, "max_completion_tokens": 5}):
        answer = chat(extra_body={"ignore_eos": True}, **{k: v for k, v in options.items() if v})
        equal(answer.usage.completion_tokens, 5)
        equal(answer.choices[0].finish_reason, "length")


@test
def ignore_eos_runs_to_the_limit():
    answer = chat(max_tokens=150, extra_body={"ignore_eos": True})
    equal(answer.usage.completion_tokens, 150)
    equal(answer.choices[0].finish_reason, "length")


@test
def n_choices_are_indexed():
    answer = chat(n=3, temperature=1, max_tokens=8)
    equal([choice.index for choice in answer.choices], [0, 1, 2])
    assert len({choice.message.content for choice in answer.choices}) > 1, "three samples at temperature 1 are the same"


@test
def completions_take_text_a_list_and_token_ids():
    one = complete()
    equal(one.object, "text_completion")
    assert one.choices[0].text
    both = complete(["One, two, three,", "The sun rises in the"])
    equal([choice.index for choice in both.choices], [0, 1])
    assert all(choice.text for choice in both.choices)
    ids = complete([504, 3575, 282, 4649, 314])
    equal(ids.usage.prompt_tokens, 5)


@test
def a_stop_string_ends_the_text_before_itself():
    whole = complete("1, 2, 3, 4, 5, 6,", max_tokens=24).choices[0].text
    stop = whole[6:9]
    answer = complete("1, 2, 3, 4, 5, 6,", max_tokens=24, stop=[stop])
    equal(answer.choices[0].finish_reason, "stop")
    equal(answer.choices[0].text, whole[: whole.index(stop)])


@test
def chat_streams_the_same_shape():
    chunks = list(chat(stream=True))
    equal(len({chunk.id for chunk in chunks}), 1)
    assert all(chunk.object == "chat.completion.chunk" for chunk in chunks)
    equal(chunks[0].choices[0].delta.role, "assistant")
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text.strip(), "no text"
    reasons = [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason]
    equal(len(reasons), 1)
    assert chunks[-1].choices[0].finish_reason, "the last chunk has no finish_reason"
    assert all("usage" not in chunk.model_fields_set for chunk in chunks), "usage was not asked for"


@test
def streamed_usage_comes_when_asked_for():
    chunks = list(chat(stream=True, stream_options={"include_usage": True}))
    equal(chunks[-1].choices, [])
    usage = chunks[-1].usage
    equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
    equal(sum("usage" in c.model_fields_set and c.usage is not None for c in chunks), 1)


@test
def completions_stream():
    chunks = list(complete(stream=True))
    assert all(chunk.object == "text_completion" for chunk in chunks)
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices)


@test
def chat_logprobs_are_those_of_the_emitted_tokens():
    answer = chat(logprobs=True, top_logprobs=3, max_tokens=12)
    entries = answer.choices[0].logprobs.content
    equal(len(entries), answer.usage.completion_tokens)
    for entry in entries:
        assert entry.logprob <= 1e-6
        tops = [top.logprob for top in entry.top_logprobs]
        equal(len(tops), 3)
        equal(tops, sorted(tops, reverse=True))
        equal(entry.top_logprobs[0].token, entry.token)  # greedy
        equal(bytes(entry.bytes).decode("utf-8", "replace").strip("\ufffd") in entry.token, True)


@test
def completion_logprobs_have_the_older_shape():
    answer = complete(logprobs=2, max_tokens=6, extra_body={"ignore_eos": True})
    logprobs = answer.choices[0].logprobs
    equal([len(logprobs.tokens), len(logprobs.token_logprobs), len(logprobs.top_logprobs)], [6, 6, 6])
    assert all(value <= 1e-6 for value in logprobs.token_logprobs)
    equal("".join(logprobs.tokens), answer.choices[0].text)


@test
def logit_bias_can_force_a_token():
    answer = complete(logit_bias={"28": 100}, max_tokens=4, logprobs=1, extra_body={"ignore_eos": True})
    equal(len(set(answer.choices[0].logprobs.tokens)), 1)


@test
def wrong_types_are_named():
    refused(openai.BadRequestError, "temperature", chat, extra_body={"temperature": "hot"})
    refused(openai.BadRequestError, "max_tokens", chat, extra_body={"max_tokens": "many"})
    refused(openai.BadRequestError, "messages", chat, messages=[])
    refused(openai.BadRequestError, "stop", chat, extra_body={"stop": 7})


@test
def an_unknown_model_is_404():
    error = refused(openai.NotFoundError, None, chat, model="no-such-model")
    assert "no-such-model" in error.message


@test
def a_wrong_key_is_401():
    stranger = client.with_options(api_key="another-key")
    refused(openai.AuthenticationError, None, stranger.models.list)


@test
def an_over_long_prompt_is_refused_and_the_node_lives():
    refused(openai.BadRequestError, None, complete, "word " * 60000)
    assert complete().choices[0].text


@test
def unknown_fields_are_ignored():
    assert chat(extra_body={"a_field_of_tomorrow": {"x": 1}}).choices


@test
def many_clients_at_once():
    async def ask(client, number):
        stream = await client.chat.completions.create(
            model=MODEL, messages=QUESTION, max_tokens=24, temperature=number % 2, stream=True
        )
        return "".join([c.choices[0].delta.content or "" async for c in stream if c.choices])

    async def ask_all():
        async with openai.AsyncOpenAI(base_url=URL + "/v1", api_key=KEY, max_retries=0, timeout=300) as client:
            return await asyncio.gather(*(ask(client, number) for number in range(12)))

    texts = asyncio.run(ask_all())
    assert all(text.strip() for text in texts), texts


def running():
    text = client._client.get(URL + "/metrics").text
    return sum(
        float(line.split()[-1])
        for line in text.splitlines()
        if line.startswith(("vllm:num_requests_running", "trimtab_requests_running"))
    )


@test
def a_client_that_leaves_frees_its_place():
    stream = chat(stream=True, max_tokens=4000, extra_body={"ignore_eos": True})
    for _, _chunk in zip(range(5), stream):
        pass
    assert running() > 0, "the request is not counted as running"
    stream.close()
    deadline = time.monotonic() + 10
    while running() > 0:
        assert time.monotonic() < deadline, "still running ten seconds after its client left"
        time.sleep(0.1)
    assert complete().choices[0].text


failed = 0
for number, function in enumerate(tests, 1):
    name = function.__name__.replace("_", " ")
    try:
        function()
        print(f"ok {number} - {name}")
    except Exception:
        failed += 1
        print(f"not ok {number} - {name}")
        for line in traceback.format_exc().splitlines():
            print("#", line)
    sys.stdout.flush()
print(f"1..{len(tests)}")
sys.exit(failed > 0)
