"""What a mock answers to the requests of a connection."""

import json
import socket
import time
from typing import Any

import pytest

from tests.support.mock_endpoint import BODY, POST, TWO, address, mocked, plan, spoken, truths


def json_bodies(data: bytes) -> list[Any]:
    lines = [line for line in data.split(b"\r\n") if line.startswith(b"{")]
    return [json.loads(line) for line in lines]


def test_requests_of_one_connection_are_answered_in_order() -> None:
    text, health = json_bodies(spoken(TWO))
    assert text["choices"] == [{"index": 0, "text": " t0 t1", "finish_reason": "length"}]
    assert text["usage"] == {"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4}
    assert health == {"status": "ok"}


def test_a_client_that_waits_for_a_word_gets_it() -> None:
    """The body goes out after the word; here simply later."""
    with (
        mocked(plan(ttft_ms=0, itl_ms=0)) as (server,),
        socket.create_connection(address(server.url), 5) as client,
    ):
        client.sendall(POST + b"Expect: 100-continue\r\nConnection: close\r\n\r\n")
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(BODY)
        assert client.recv(12) == b"HTTP/1.1 200"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/models", 200),
        ("GET", "/nothing", 404),
        ("POST", "/health", 405),
        ("GET", "/v1/completions", 405),
    ],
)
def test_paths(method: str, path: str, status: int) -> None:
    answer = spoken(f"{method} {path} HTTP/1.1\r\nConnection: close\r\n\r\n".encode())
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    (body,) = json_bodies(answer)
    if status == 200:
        assert [card["id"] for card in body["data"]] == ["mock"]
    else:
        assert path in body["error"]["message"]


def ask(**fields: Any) -> bytes:
    body = json.dumps({"prompt": "a", **fields}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


@pytest.mark.parametrize(
    ("tokens", "max_tokens", "made", "finish"),
    [(None, 3, 3, "length"), (2, 3, 2, "stop"), (5, 3, 3, "length"), (None, None, 16, "length")],
)
def test_lengths(tokens: int | None, max_tokens: int | None, made: int, finish: str) -> None:
    served = plan(ttft_ms=0, itl_ms=0, tokens=tokens)
    (body,) = json_bodies(spoken(ask(max_tokens=max_tokens), served=served))
    assert body["usage"]["completion_tokens"] == made
    assert body["choices"][0]["finish_reason"] == finish


@pytest.mark.parametrize("usage", [True, False])
def test_usage_comes_where_it_is_asked_for(usage: bool) -> None:
    options = {"stream": True, "stream_options": {"include_usage": usage}, "max_tokens": 2}
    data = spoken(ask(**options))
    events = [line.removeprefix(b"data: ") for line in data.split(b"\n") if line[:5] == b"data:"]
    assert events.pop() == b"[DONE]"
    usages = [event["usage"] for event in map(json.loads, events) if event.get("usage")]
    assert [counts["completion_tokens"] for counts in usages] == [2] * usage


def test_a_stream_whose_client_leaves_is_over() -> None:
    with mocked(plan(ttft_ms=1, itl_ms=10_000)) as (server,):
        with socket.create_connection(address(server.url), 5) as client:
            client.sendall(ask(stream=True))
            while b"t0" not in client.recv(65_536):
                pass
        (truth,) = truths(server).values()
        for _ in range(1000):
            time.sleep(0.01 if truth.outcome == "running" else 0)
    assert (truth.outcome, truth.tokens) == ("left", [1])


def test_an_embedding_comes_whole_and_faults_hit_it_too() -> None:
    body = b'{"input": "a b c"}'
    head = b"POST /v1/embeddings HTTP/1.1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    (answer,) = json_bodies(spoken(head % len(body) + body))
    assert answer["usage"] == {"prompt_tokens": 3, "total_tokens": 3}
    assert [len(one["embedding"]) for one in answer["data"]] == [64]
    busy = spoken(head % len(body) + body, served=plan("status:code=429", ttft_ms=0))
    assert busy.startswith(b"HTTP/1.1 429 ")


def test_further_models_are_listed_and_answer_in_their_name() -> None:
    served = plan(ttft_ms=0, itl_ms=0, lora_modules=("sql",))
    listed = spoken(b"GET /v1/models HTTP/1.1\r\nConnection: close\r\n\r\n", served=served)
    assert [card["id"] for card in json_bodies(listed)[0]["data"]] == ["mock", "sql"]
    (answer,) = json_bodies(spoken(ask(model="sql", max_tokens=1), served=served))
    assert answer["model"] == "sql"
    (wrong,) = json_bodies(spoken(ask(model="x"), served=served))
    assert wrong["error"]["message"] == "the model 'x' does not exist; served is 'mock', 'sql'"
