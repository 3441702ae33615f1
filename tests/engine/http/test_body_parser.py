"""Large bodies are parsed in another process, with the answers that small ones get."""

import asyncio
import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from servetwin.engine.http import body_parser
from servetwin.engine.http.api_errors import ApiError
from servetwin.engine.http.body_parser import SMALL_BODY_BYTES, BodyParser
from servetwin.engine.http.body_reader import LARGE_BODY_BYTES
from servetwin.engine.http.protocol import (
    ChatBody,
    CompletionBody,
    GenerationBody,
    GenerationRequest,
    ModelLimits,
)
from servetwin.engine.text.byte_tokenizer import ByteTokenizer
from tests.support.live_server import wait_until

LIMITS = ModelLimits("fake", 1000, 300_000)
CASES: list[tuple[type[GenerationBody], dict[str, Any]]] = [
    (CompletionBody, {"prompt": "a" * 100}),
    (CompletionBody, {"prompt": [[5] * 9, [7]], "max_tokens": 4, "stream": True, "seed": 3}),
    (CompletionBody, {"prompt": [True] * 99}),
    (CompletionBody, {"prompt": [5] * 99 + [1000]}),
    (CompletionBody, {"prompt": "a", "model": "other"}),
    (CompletionBody, {"prompt": "a", "guided_json": {}}),
    (ChatBody, {"messages": [{"role": "user", "content": "hi"}]}),
    (ChatBody, {"messages": [{}] * 99}),
]


@pytest.fixture(scope="module")
def parser() -> Iterator[BodyParser]:
    with closing(BodyParser()) as parser:
        yield parser


def parsed(parser: BodyParser, kind: type[GenerationBody], raw: bytes) -> object:
    """The request, or the error's fields."""
    try:
        return asyncio.run(parser.parse(kind, bytearray(raw), LIMITS))
    except ApiError as error:
        return error.status, error.message, error.param, error.code


class RecordingTokenizer(ByteTokenizer):
    """Says in which thread it worked."""

    is_slow = True

    def encode(self, text: str) -> list[int]:
        threads.append(threading.current_thread())
        return super().encode(text)


threads: list[threading.Thread] = []


@pytest.mark.parametrize("size", [100, 5000])
def test_a_slow_tokenizer_keeps_long_texts_out_of_the_event_loop(size: int) -> None:
    limits = ModelLimits("fake", 1000, 300_000, RecordingTokenizer())
    body = bytearray(json.dumps({"prompt": "a" * size}).encode())
    with closing(BodyParser()) as parser:
        asked = asyncio.run(parser.parse(CompletionBody, body, limits))
        assert parser.process_ids == []
    assert len(asked.prompts[0][0]) == size
    assert (threads[-1] is threading.main_thread()) == (size < SMALL_BODY_BYTES)


@pytest.mark.parametrize(("kind", "body"), CASES)
def test_both_ways_give_the_same(
    parser: BodyParser, kind: type[GenerationBody], body: dict[str, Any]
) -> None:
    raw = json.dumps(body).encode()
    here, there = parsed(parser, kind, raw), parsed(parser, kind, raw.ljust(LARGE_BODY_BYTES + 1))
    assert here == there


def test_small_bodies_need_no_process() -> None:
    with closing(BodyParser()) as parser:
        assert isinstance(parsed(parser, CompletionBody, b'{"prompt":"a"}'), GenerationRequest)
        assert parser.process_ids == []


LARGE = b'{"prompt":"a"}'.ljust(LARGE_BODY_BYTES + 1)


def test_a_process_that_dies_fails_one_body() -> None:
    with closing(BodyParser()) as parser:
        assert isinstance(parsed(parser, CompletionBody, LARGE), GenerationRequest)
        (process_id,) = parser.process_ids
        os.kill(process_id, signal.SIGKILL)
        assert parsed(parser, CompletionBody, LARGE) == (
            400, "the body could not be parsed: its process has died", None, "invalid_json",
        )  # fmt: skip
        assert isinstance(parsed(parser, CompletionBody, LARGE), GenerationRequest)


def test_a_body_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(BodyParser()) as parser:
        assert isinstance(parsed(parser, CompletionBody, LARGE), GenerationRequest)
        (process_id,) = parser.process_ids
        os.kill(process_id, signal.SIGSTOP)
        monkeypatch.setattr(body_parser, "PARSE_LIMIT_S", 0.2)
        found = parsed(parser, CompletionBody, LARGE)
        assert found == (400, "the body took more than 0.2 s to parse", None, "invalid_json")


def test_huge_bodies_leave_a_process_to_others() -> None:
    huge = LARGE.ljust(body_parser.HUGE_BODY_BYTES + 1)

    async def all_at_once(parser: BodyParser) -> None:
        kept = [
            asyncio.ensure_future(parser.parse(CompletionBody, bytearray(huge), LIMITS))
            for _ in range(4)
        ]
        await asyncio.to_thread(wait_until, lambda: bool(parser.process_ids))
        (stopped,) = parser.process_ids
        os.kill(stopped, signal.SIGSTOP)
        other = await parser.parse(CompletionBody, bytearray(LARGE), LIMITS)
        assert isinstance(other, GenerationRequest)
        assert not any(task.done() for task in kept)
        os.kill(stopped, signal.SIGCONT)
        assert len(await asyncio.gather(*kept)) == 4
        assert len(parser.process_ids) == 2

    with closing(BodyParser()) as parser:
        asyncio.run(all_at_once(parser))
