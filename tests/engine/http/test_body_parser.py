"""Large bodies are parsed in another process, with the answers that small ones get."""

import asyncio
import json
import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
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


def parsed(kind: type[GenerationBody], *bodies: bytes) -> list[object]:
    """The requests, or the errors' fields; one after the other, by one parser."""

    async def parse() -> list[object]:
        parser = BodyParser()
        return [await outcome(parser, kind, raw) for raw in bodies]

    return asyncio.run(parse())


async def outcome(parser: BodyParser, kind: type[GenerationBody], raw: bytes) -> object:
    try:
        return await parser.parse(kind, bytearray(raw), LIMITS)
    except ApiError as error:
        return error.status, error.message, error.param, error.code


def processes() -> list[int]:
    """The processes that parse large bodies now."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            arguments = (folder / "cmdline").read_bytes()
            if int(parent) == os.getpid() and b"anyio.to_process" in arguments:
                found.append(int(folder.name))
    return found


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
    asked = asyncio.run(BodyParser().parse(CompletionBody, body, limits))
    assert len(asked.prompts[0][0]) == size
    assert (threads[-1] is threading.main_thread()) == (size < SMALL_BODY_BYTES)


@pytest.mark.parametrize("kind", [CompletionBody, ChatBody])
def test_both_ways_give_the_same(kind: type[GenerationBody]) -> None:
    small = [json.dumps(body).encode() for one, body in CASES if one is kind]
    large = [raw.ljust(LARGE_BODY_BYTES + 1) for raw in small]
    assert parsed(kind, *small) == parsed(kind, *large)


@pytest.mark.parametrize("text", ["a", "a" * (LARGE_BODY_BYTES - 100)])
def test_small_bodies_need_no_process(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(body_parser, "_in_process")
    (found,) = parsed(CompletionBody, json.dumps({"prompt": text}).encode())
    assert isinstance(found, GenerationRequest)


LARGE = b'{"prompt":"a"}'.ljust(LARGE_BODY_BYTES + 1)


def test_a_process_that_dies_fails_one_body() -> None:
    async def kill_it_between() -> None:
        parser = BodyParser()
        assert isinstance(await outcome(parser, CompletionBody, LARGE), GenerationRequest)
        (process_id,) = processes()
        body = asyncio.ensure_future(outcome(parser, CompletionBody, HUGE))
        os.kill(process_id, signal.SIGSTOP)
        await asyncio.sleep(0.1)
        os.kill(process_id, signal.SIGKILL)
        assert await body == (
            400, "the body could not be parsed: its process has died", None, "invalid_json",
        )  # fmt: skip
        assert isinstance(await outcome(parser, CompletionBody, LARGE), GenerationRequest)

    asyncio.run(kill_it_between())
    wait_until(lambda: processes() == [])  # All end with the event loop, in their own time.


def test_a_body_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stop_it() -> None:
        parser = BodyParser()
        assert isinstance(await outcome(parser, CompletionBody, LARGE), GenerationRequest)
        (process_id,) = processes()
        os.kill(process_id, signal.SIGSTOP)
        monkeypatch.setattr(body_parser, "PARSE_LIMIT_S", 0.2)
        found = await outcome(parser, CompletionBody, LARGE)
        assert found == (400, "the body took more than 0.2 s to parse", None, "invalid_json")
        wait_until(lambda: processes() == [])

    asyncio.run(stop_it())


def test_signals_to_the_whole_group_end_no_process() -> None:
    """Ctrl-C reaches all: the server lets running requests finish."""

    async def interrupt() -> None:
        parser = BodyParser()
        assert isinstance(await outcome(parser, CompletionBody, LARGE), GenerationRequest)
        (process_id,) = processes()
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(process_id, number)
        assert isinstance(await outcome(parser, CompletionBody, LARGE), GenerationRequest)
        assert processes() == [process_id]

    asyncio.run(interrupt())


HUGE = LARGE.ljust(body_parser.HUGE_BODY_BYTES + 1)


def test_huge_bodies_leave_a_process_to_others() -> None:
    async def all_at_once() -> None:
        parser = BodyParser()
        kept = [asyncio.ensure_future(outcome(parser, CompletionBody, HUGE)) for _ in range(4)]
        await asyncio.to_thread(wait_until, lambda: bool(processes()))
        (stopped,) = processes()
        os.kill(stopped, signal.SIGSTOP)
        other = await outcome(parser, CompletionBody, LARGE)
        assert isinstance(other, GenerationRequest)
        assert not any(task.done() for task in kept)
        os.kill(stopped, signal.SIGCONT)
        found = await asyncio.gather(*kept)
        assert all(isinstance(one, GenerationRequest) for one in found)
        assert len(processes()) == 2

    asyncio.run(all_at_once())
