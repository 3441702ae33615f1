"""Requests to the mock: what they want, and what is wrong with them."""

import json
from typing import Any

import pytest

from servetwin.loadtest.mock.parsed_request import BadRequest, parse_request

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 400, "the body is not a JSON object"),
        (b"\xff", 400, "the body is not a JSON object"),
        (b"[]", 400, "the body is not a JSON object"),
        (b"{}", 400, "prompt is missing"),
        (b'{"prompt": 3}', 400, "prompt is missing"),
        (b'{"prompt": "a", "max_tokens": 0}', 400, "max_tokens must be a whole number of at least"),
        (b'{"prompt": "a", "max_tokens": true}', 400, "max_tokens must be a whole number of at"),
        (b'{"prompt": "a", "model": "b"}', 404, "the model 'b' does not exist; served is 'mock'"),
    ],
)
def test_requests_that_cannot_be_answered(body: bytes, status: int, message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_request(0, "prompt", body, ["mock"])
    assert caught.value.status == status
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("chat", "body", "prompt_tokens", "max_tokens"),
    [
        (False, {"prompt": "a b  c"}, 3, 16),
        (False, {"prompt": [5, 6], "max_tokens": 3}, 2, 3),
        (True, {"messages": [{"role": "user", "content": "a b"}], "max_tokens": 4}, 2, 4),
        (True, {"messages": [{"content": None}], "max_completion_tokens": 5}, 0, 5),
        (True, {"messages": [{"content": [{"type": "text", "text": "a b"}, IMAGE]}]}, 2, 16),
    ],
)
def test_what_is_asked_for(
    chat: bool, body: dict[str, Any], prompt_tokens: int, max_tokens: int
) -> None:
    ask = parse_request(3, "messages" if chat else "prompt", json.dumps(body).encode(), ["mock"])
    assert (ask.prompt_tokens, ask.max_tokens, ask.stream) == (prompt_tokens, max_tokens, False)
    assert ask.request_id == "mock-3"


@pytest.mark.parametrize(
    "part",
    [
        "a",
        {"type": "text"},
        {"type": "image_url"},
        {"type": "image_url", "image_url": {"url": "cat.png"}},
        {"type": "audio"},
    ],
)
def test_a_part_that_is_neither_text_nor_image(part: object) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": [part]}]}).encode()
    with pytest.raises(BadRequest, match="messages: a part of the content is not a text"):
        parse_request(0, "messages", body, ["mock"])


@pytest.mark.parametrize(("given", "tokens"), [("a b c", 3), ([5, 6], 2)])
def test_an_embedding_has_an_input(given: object, tokens: int) -> None:
    ask = parse_request(1, "input", json.dumps({"input": given, "model": "b"}).encode(), ["a", "b"])
    assert (ask.prompt_tokens, ask.max_tokens, ask.model) == (tokens, 0, "b")


def test_an_embedding_without_an_input() -> None:
    with pytest.raises(BadRequest, match="input is missing"):
        parse_request(1, "input", b"{}", ["a"])
