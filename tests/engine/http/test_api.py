"""The HTTP API over a real socket: answers, streams, cancellation, failures, metrics."""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from servetwin.policies.config import PolicyConfig
from tests.support.fake_engine import POISON, STUMBLE, VOCAB_SIZE
from tests.support.live_server import (
    CHAT,
    COMPLETIONS,
    CONFIG,
    LiveServer,
    wait_until,
    with_messages,
    with_prompt,
)


@pytest.fixture
def slow_server() -> Iterator[LiveServer]:
    """One sequence at a time, one may wait, and a step takes 10 ms."""
    config = PolicyConfig(kv_tokens=2000, max_model_len=2000, max_seqs=1, queue_limit=1)
    with LiveServer(config, step_s=0.01) as live:
        yield live


def events(response: httpx.Response) -> list[Any]:
    """The data of a stream's events; ``[DONE]`` as it is."""
    blocks = response.text.split("\n\n")
    assert blocks.pop() == ""
    assert all(block.startswith("data: ") for block in blocks)
    datas = [block.removeprefix("data: ") for block in blocks]
    return [data if data == "[DONE]" else json.loads(data) for data in datas]


# Answers


def test_completion(server: LiveServer) -> None:
    body = {"model": "fake", "prompt": [300, 301], "max_tokens": 3, "return_token_ids": True}
    response = server.client.post(COMPLETIONS, json=body)
    assert response.status_code == 200
    answer = response.json()
    assert answer.pop("created") > 0
    assert answer.pop("id").startswith("cmpl-")
    assert answer == {
        "object": "text_completion",
        "model": "fake",
        "choices": [
            {
                "index": 0,
                "text": " w302 w303 w304",
                "logprobs": None,
                "finish_reason": "length",
                "token_ids": [302, 303, 304],
            }
        ],
        "usage": {
            "prompt_tokens": 2,
            "completion_tokens": 3,
            "total_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }


def test_completion_as_a_stream(server: LiveServer) -> None:
    body = {
        "prompt": "ab",
        "max_tokens": 3,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
    }
    response = server.client.post(COMPLETIONS, json=body)
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    *chunks, usage, done = events(response)
    assert done == "[DONE]"
    assert [chunk["choices"] for chunk in chunks] == [
        [
            {
                "index": 0,
                "text": text,
                "logprobs": None,
                "finish_reason": reason,
                "token_ids": [token],
            }
        ]
        for text, reason, token in [("c", None, 99), ("d", None, 100), ("e", "length", 101)]
    ]
    assert all("usage" not in chunk for chunk in chunks)
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 3
    same = {(c["id"], c["object"], c["model"]) for c in (*chunks, usage)}
    assert len(same) == 1
    assert same.pop()[1:] == ("text_completion", "fake")


def test_chat(server: LiveServer) -> None:
    parts = [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]
    messages = [{"role": "system", "content": "be"}, {"role": "user", "content": parts}]
    response = server.client.post(CHAT, json={"messages": messages, "max_completion_tokens": 2})
    answer = response.json()
    assert answer["object"] == "chat.completion"
    assert answer["id"].startswith("chatcmpl-")
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": ";<"},  # after the ":" of "assistant:"
            "logprobs": None,
            "finish_reason": "length",
        }
    ]
    assert answer["usage"]["prompt_tokens"] == len("system: be\nuser: hi\nassistant:")


def test_chat_as_a_stream(server: LiveServer) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, "stream": True}
    response = server.client.post(CHAT, json=body)
    *chunks, done = events(response)
    assert done == "[DONE]"
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert [(c["choices"][0]["delta"], c["choices"][0]["finish_reason"]) for c in chunks] == [
        ({"role": "assistant", "content": ""}, None),
        ({"content": ";"}, None),
        ({"content": "<"}, "length"),
    ]


@pytest.mark.parametrize(
    ("fields", "text", "tokens", "reason"),
    [
        ({}, "BCDEFGHIJKLMNOPQ", 16, "length"),
        ({"prompt": ["A"], "max_tokens": 1}, "B", 1, "length"),
        ({"prompt": [[64, 65]], "max_tokens": 1}, "B", 1, "length"),
        ({"max_tokens": 9, "stop": "D"}, "BC", 3, "stop"),
        ({"max_tokens": 9, "stop": ["X", "CD"]}, "B", 3, "stop"),
        ({"max_tokens": 9, "stop": "B", "min_tokens": 2}, "BCDEFGHIJ", 9, "length"),
        ({"prompt": [997]}, " w998", 2, "stop"),
        ({"max_tokens": 2, "stop": None, "seed": None}, "BC", 2, "length"),
        ({"max_tokens": 2, "n": 1, "echo": False}, "BC", 2, "length"),
        ({"max_tokens": 2, "user": "me", "unknown": [1]}, "BC", 2, "length"),
        ({"max_tokens": 2, "bad_words": [], "guided_json": None}, "BC", 2, "length"),
        ({"prompt": [65] * 252}, "BCDE", 4, "length"),
        ({"prompt": [65] * 256}, "B", 1, "length"),  # the last token is never stored
        ({"max_tokens": 3, "temperature": 1, "seed": 5}, "BCD", 3, "length"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_generated(
    server: LiveServer, fields: dict[str, Any], text: str, tokens: int, reason: str, stream: bool
) -> None:
    body = with_prompt(**fields, stream=stream, stream_options={"include_usage": True})
    response = server.client.post(COMPLETIONS, json=body)
    assert response.status_code == 200, response.text
    if stream:
        *chunks, usage, _ = events(response)
        assert len(chunks) == tokens
    else:
        chunks, usage = [response.json()], response.json()
    choices = [chunk["choices"][0] for chunk in chunks]
    assert "".join(choice["text"] for choice in choices) == text
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + [reason]
    assert usage["usage"]["completion_tokens"] == tokens


def test_chat_answers_may_fill_the_memory_by_default(server: LiveServer) -> None:
    messages = [{"role": "user", "content": "x" * 200}]
    answer = server.client.post(CHAT, json={"messages": messages, "ignore_eos": True}).json()
    assert answer["usage"]["total_tokens"] == 256  # the KV memory, less than the model length


def test_usage_tells_of_prefix_hits(server: LiveServer) -> None:
    body = {"prompt": list(range(400, 411)), "max_tokens": 1}
    cached = [
        server.client.post(COMPLETIONS, json=body).json()["usage"]["prompt_tokens_details"]
        for _ in range(2)
    ]
    assert cached == [{"cached_tokens": 0}, {"cached_tokens": 8}]


def test_model_card_and_facts(server: LiveServer) -> None:
    (card,) = server.client.get("/v1/models").json()["data"]
    assert (card["id"], card["max_model_len"], card["vocab_size"]) == ("fake", 300, VOCAB_SIZE)
    assert server.client.get("/servetwin/engine").json()["kv_tokens"] == 256
    assert server.client.get("/health").status_code == 200


# Load, cancellation, failure


LONG = with_prompt(max_tokens=1500, ignore_eos=True)


@contextmanager
def running_stream(server: LiveServer) -> Iterator[Iterator[str]]:
    """A long stream that has begun; its remaining lines."""
    with server.client.stream("POST", COMPLETIONS, json=LONG | {"stream": True}) as response:
        assert response.status_code == 200
        lines = response.iter_lines()
        assert next(lines).startswith("data: ")
        yield lines


def test_a_full_queue_is_429_and_a_client_that_leaves_makes_room(slow_server: LiveServer) -> None:
    client = slow_server.client
    with ThreadPoolExecutor(1) as pool:
        with running_stream(slow_server):
            waiting = pool.submit(client.post, COMPLETIONS, json=with_prompt(max_tokens=2))
            wait_until(lambda: slow_server.metrics()["vllm:num_requests_waiting"] == 1)
            for stream in (False, True):
                refused = client.post(COMPLETIONS, json=with_prompt(stream=stream))
                assert refused.status_code == 429
                assert refused.headers["retry-after"] == "1"
                assert refused.json()["error"] == {
                    "message": "1 requests are waiting already",
                    "type": "rate_limit_error",
                    "param": None,
                    "code": "queue_full",
                }
        assert waiting.result().json()["choices"][0]["text"] == "BC"


def connect_and_ask(server: LiveServer, body: dict[str, Any]) -> socket.socket:
    """A connection that has asked and does not read."""
    url = server.client.base_url
    connection = socket.create_connection((url.host, url.port or 80))
    content = json.dumps(body).encode()
    head = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: [::1]\r\nContent-Length: {len(content)}\r\n\r\n"
    connection.sendall(head.encode() + content)
    return connection


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_frees_its_memory(slow_server: LiveServer, stream: bool) -> None:
    running = connect_and_ask(slow_server, LONG | {"stream": stream})
    wait_until(lambda: slow_server.metrics()["vllm:kv_cache_usage_perc"] > 0)
    waiting = connect_and_ask(slow_server, LONG | {"stream": stream})
    wait_until(lambda: slow_server.metrics()["vllm:num_requests_waiting"] == 1)
    waiting.close()
    wait_until(lambda: slow_server.metrics()["vllm:num_requests_waiting"] == 0)
    assert slow_server.metrics()["vllm:num_requests_running"] == 1
    running.close()
    wait_until(lambda: slow_server.metrics()["vllm:num_requests_running"] == 0)
    metrics = slow_server.metrics()
    assert metrics["vllm:kv_cache_usage_perc"] == 0
    assert metrics["vllm:request_success_total/abort"] == 2
    assert metrics["vllm:request_success_total/length"] == 0


def test_a_core_that_is_killed_fails_everybody(slow_server: LiveServer) -> None:
    client = slow_server.client
    assert client.get("/health").status_code == 200
    with ThreadPoolExecutor(1) as pool, running_stream(slow_server) as lines:
        waiting = pool.submit(client.post, COMPLETIONS, json=with_prompt())
        wait_until(lambda: slow_server.metrics()["vllm:num_requests_waiting"] == 1)
        slow_server.process.kill()
        datas = [line.removeprefix("data: ") for line in lines if line]
        message = "the engine core has died: its process is gone"
        assert json.loads(datas[-1])["error"]["message"] == message
        assert waiting.result().status_code == 503
    for response in (client.get("/health"), client.post(COMPLETIONS, json=with_prompt())):
        assert response.status_code == 503
        assert response.json()["error"]["message"] == message


def test_a_request_that_fails_in_a_step_leaves_the_others_alone() -> None:
    config = PolicyConfig(kv_tokens=2000, max_model_len=2000, max_seqs=4)
    with LiveServer(config, step_s=0.01) as server, running_stream(server) as lines:
        response = server.client.post(COMPLETIONS, json={"prompt": [POISON]})
        stream = server.client.post(COMPLETIONS, json={"prompt": [POISON - 2], "stream": True})
        assert "error" not in next(line for line in lines if line)
        assert server.client.get("/health").status_code == 200
        assert server.metrics()["vllm:request_success_total/error"] == 1
    assert response.status_code == 500
    error = response.json()["error"]
    assert error["message"] == "the request failed: RuntimeError: poisoned"
    assert (error["type"], error["code"]) == ("server_error", "request_failed")
    assert stream.text.endswith("[DONE]\n\n")


def test_a_request_that_fails_in_its_stream_is_told() -> None:
    with LiveServer(CONFIG) as server:
        body = with_prompt(prompt=[STUMBLE], max_tokens=5, stream=True)
        response = server.client.post(COMPLETIONS, json=body)
        assert server.client.post(COMPLETIONS, json=with_prompt()).status_code == 200
        assert server.metrics()["vllm:kv_cache_usage_perc"] == 0
    *chunks, last = events(response)
    assert [chunk["choices"][0]["text"] for chunk in chunks] == [f" w{STUMBLE + 1}"]
    assert last["error"]["message"] == "the request failed: RuntimeError: stumbled"


def test_a_server_that_drains_refuses_new_requests(fresh_server: LiveServer) -> None:
    fresh_server.core.draining = True
    for response in (
        fresh_server.client.get("/health"),
        fresh_server.client.post(COMPLETIONS, json=with_prompt()),
        fresh_server.client.post(CHAT, json=with_messages({"role": "user", "content": "a"})),
    ):
        assert response.status_code == 503
        assert response.json()["error"]["message"] == "the server is shutting down"


# Metrics
