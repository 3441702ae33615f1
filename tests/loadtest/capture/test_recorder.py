"""What passes a tunnel is unchanged, and what is recorded of it replays it and tells no text."""

import asyncio
import base64
import codecs
import gzip
import json
import resource
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from servetwin.loadtest.capture import recorder, tunnel
from servetwin.loadtest.capture.recorder import Recorded, Recorder, recording
from servetwin.loadtest.recorded.reading import read_recording
from servetwin.workloads.errors import TraceError
from servetwin.workloads.reading import read_trace
from servetwin.workloads.trace import Trace
from tests.support.command import refused
from tests.support.raw_server import CHUNKED, OK, Caller, Handler, raw_server, run, says

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
Story = Callable[[str], Awaitable[None]]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(**fields: Any) -> bytes:
    return chunk(b"data: " + json.dumps(fields).encode() + b"\n\n")


def word(text: str) -> bytes:
    return event(choices=[{"index": 0, "delta": {"content": text}}])


LAST = event(
    choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}],
    usage={"prompt_tokens": 64, "completion_tokens": 3, "total_tokens": 67},
)
END = chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
STREAM = (CHUNKED, word("a"), word(" b"), word(" c"), LAST, END)


def recorded(handle: Handler, story: Story, path: Path) -> tuple[Recorded, list[Caller]]:
    """Run a story of clients of a tunnel; return what it recorded, and the server's connections."""

    async def tell() -> tuple[Recorded, list[Caller]]:
        async with raw_server(handle) as server:
            url = httpx.URL(f"http://127.0.0.1:{server.port}")
            async with recording(url, path) as (at, done):
                await story(at)
        return done, server.callers

    return run(tell())


def chat(*texts: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text} for text in texts]
    return {"model": "m", "messages": messages, "stream": True, **fields}


def posts(*bodies: dict[str, Any], path: str = CHAT, headers: Any = None) -> Story:
    async def story(at: str) -> None:
        async with httpx.AsyncClient(base_url=at) as client:
            for body in bodies:
                await client.post(path, json=body, headers=headers)

    return story


def traced(path: Path, *bodies: dict[str, Any], headers: Any = None) -> Trace:
    done, _ = recorded(says(*STREAM), posts(*bodies, headers=headers), path)
    assert (done.requests, done.error) == (len(bodies), "")
    return read_trace(path)


async def raw_answer(at: str, request: bytes) -> bytes:
    """Return all bytes of the answer on a new connection that the server closes."""
    url = httpx.URL(at)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


GET = b"GET /v1/models?x=1 HTTP/1.1\r\nHost: there\r\nX-Odd: \xe9\r\n\r\n"
POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: there\r\nContent-Length: 2\r\n\r\n{}"


@pytest.mark.parametrize("request_bytes", [GET, POST])
@pytest.mark.parametrize(
    "parts",
    [
        STREAM,
        (OK + b"Content-Length: 3\r\n\r\n", b"a", b"bc"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"content-length: 0\r\n\r\n",),
        (b"HTTP/1.0 200 Fine\r\nX-Odd: \xff\r\n\r\nto the end",),
        (b"not HTTP at all",),
        (b"HTTP/1.1 429 Slow\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n",),
    ],
)
def test_answers_pass_byte_by_byte(
    request_bytes: bytes, parts: tuple[bytes, ...], tmp_path: Path
) -> None:
    answers: list[bytes] = []

    async def story(at: str) -> None:
        answers.append(await raw_answer(at, request_bytes))

    _, [caller] = recorded(says(*parts, hangs_up=True), story, tmp_path / "t.jsonl")
    assert answers == [b"".join(parts)]
    [seen] = caller.requests
    assert (
        seen.replace(b"Host: 127.0.0.1:", b"Host: ").split(b"\r\n")[0]
        == request_bytes.split(b"\r\n")[0]
    )
    assert b"Host: there" not in seen
    assert seen.split(b"\r\n")[2:] == request_bytes.split(b"\r\n")[2:]


def test_a_request_in_chunks_arrives_in_chunks(tmp_path: Path) -> None:
    seen = bytearray()

    async def handle(caller: Caller) -> None:
        while not seen.endswith(b"0\r\n\r\n"):
            seen.extend(await caller.reader.read(1000))
        await caller.say(OK + b"Content-Length: 0\r\n\r\n")

    async def parts() -> Any:
        yield b'{"prompt":'
        yield b' "a"}'

    async def story(at: str) -> None:
        async with httpx.AsyncClient(base_url=at) as client:
            await client.post(COMPLETIONS, content=parts())

    recorded(handle, story, tmp_path / "t.jsonl")
    assert seen.endswith(chunk(b'{"prompt":') + chunk(b' "a"}') + b"0\r\n\r\n")


def test_a_request_has_its_lengths_times_and_blocks(tmp_path: Path) -> None:
    same = "x" * 400
    first, second = traced(tmp_path / "t.jsonl", chat(same), chat(same, "y" * 400))
    assert (first.arrival_s, first.prompt_tokens, first.output_tokens) == (0, 64, 3)
    assert second.arrival_s > 0
    assert len(first.prefix_block_ids) == first.prompt_tokens // 16 == 4
    assert first.prefix_block_ids == second.prefix_block_ids, "as far as both go"
    recording = read_recording(tmp_path / "t.jsonl")
    assert recording.tool == "servetwin record"
    one = recording.requests[0]
    assert (one.arrival_s or 0) < (one.first_token_s or 0) <= (one.last_token_s or 0)


def test_sessions_and_parents_are_those_that_clients_name(tmp_path: Path) -> None:
    async def story(at: str) -> None:
        async with httpx.AsyncClient(base_url=at) as client:
            for session, name, parent in (("s", "1", ""), ("s", "2", ""), ("u", "3", "1")):
                headers = {"x-session-id": session, "x-request-id": name}
                body = chat("hello", **({"parent_ids": [parent]} if parent else {}))
                await client.post(CHAT, json=body, headers=headers)

    recorded(says(*STREAM), story, tmp_path / "t.jsonl")
    one, two, three = read_trace(tmp_path / "t.jsonl")
    assert one.session_id == two.session_id != three.session_id
    assert (one.turn, two.turn, three.turn) == (0, 1, 0)
    assert two.parent_ids == three.parent_ids == (one.request_id,)
    assert 0 < (two.delay_s or 0) < (three.delay_s or 0)


PLANTED = "Zebra-Quartz_7731"


def disguises(text: str) -> set[bytes]:
    """The encodings in which a text could be hidden."""
    raw = text.encode()
    plain = {raw, raw[::-1], raw.lower(), raw.upper(), codecs.encode(text, "rot13").encode()}
    wide = {text.encode("utf-16-le"), text.encode("utf-32-le"), json.dumps([*raw])[1:-1].encode()}
    packed = {base64.b64encode(bytes(pad) + raw)[4:-4] for pad in range(3)}
    return (
        plain
        | wide
        | packed
        | {raw.hex().encode(), quote(text).encode(), gzip.compress(raw)[10:-8]}
    )


def test_a_trace_holds_nothing_that_clients_or_servers_said(tmp_path: Path) -> None:
    said = (CHUNKED, word(PLANTED), LAST, END)
    names = ("x-session-id", "x-request-id", "x-parent-id", "user-agent", "authorization")
    body = chat(
        PLANTED, user=PLANTED, session_id=PLANTED, tools=[{"name": PLANTED}],
        metadata={PLANTED: PLANTED}, parent_ids=[PLANTED],
    )  # fmt: skip
    body["model"] = body["prompt_cache_key"] = PLANTED
    story = posts(body, body, path=f"{CHAT}?key={PLANTED}", headers=dict.fromkeys(names, PLANTED))
    done, callers = recorded(says(*said), story, tmp_path / "t.jsonl")
    assert done.requests == 2
    assert PLANTED.encode() in callers[0].requests[0], "the server has heard it"
    written = (tmp_path / "t.jsonl").read_bytes()
    assert [hidden for hidden in disguises(PLANTED) if hidden in written] == []


def test_equal_prompts_of_two_recordings_have_nothing_in_common(tmp_path: Path) -> None:
    one, two = (
        {*traced(tmp_path / name, chat("x" * 400)).requests[0].prefix_block_ids}
        for name in ("1.jsonl", "2.jsonl")
    )
    assert (len(one), one & two) == (4, set())


def cut(*parts: bytes) -> Handler:
    return says(*parts, hangs_up=True)


@pytest.mark.parametrize(
    ("handle", "error", "tokens"),
    [
        (cut(CHUNKED, word("a"), word("b")), "broken_stream", 2),
        (says(b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n"), "http_5xx", 0),
        (says(b"HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n"), "http_4xx", 0),
        (says(b"HTTP/1.1 429 Slow\r\nContent-Length: 0\r\n\r\n"), "http_429", 0),
        (cut(), "broken_stream", 0),
    ],
)
def test_what_fails_passes_and_is_counted(
    handle: Handler, error: str, tokens: int, tmp_path: Path
) -> None:
    async def story(at: str) -> None:
        async with httpx.AsyncClient(base_url=at) as client:
            try:
                await client.post(CHAT, json=chat("hello"))
            except httpx.HTTPError:
                assert error == "broken_stream"

    done, _ = recorded(handle, story, tmp_path / "t.jsonl")
    assert (done.requests, done.failed) == (1, 1)
    [row] = map(json.loads, (tmp_path / "t.jsonl").read_text().splitlines()[1:])
    assert (row["error"], row["output_tokens"]) == (error, tokens)
    [request] = read_trace(tmp_path / "t.jsonl", keep_failed=True)
    assert request.status == "failed"


def test_a_server_that_is_not_there_is_said_to_the_client(tmp_path: Path) -> None:
    async def tell() -> tuple[httpx.Response, Recorded]:
        async with (
            recording(httpx.URL("http://127.0.0.1:1"), tmp_path / "t.jsonl") as (at, done),
            httpx.AsyncClient(base_url=at) as client,
        ):
            answer = await client.post(CHAT, json=chat("hello"))
        return answer, done

    answer, done = run(tell())
    assert answer.status_code == 502
    assert "127.0.0.1:1" in answer.json()["error"]["message"]
    assert (done.requests, done.failed) == (1, 1)


def test_a_client_that_hangs_up_closes_its_connection_to_the_server(tmp_path: Path) -> None:
    async def handle(caller: Caller) -> None:
        await caller.ask()
        await caller.say(CHUNKED, word("a"))
        await caller.reader.read()

    async def story(at: str) -> None:
        async with (
            httpx.AsyncClient(base_url=at) as client,
            client.stream("POST", CHAT, json=chat("hello")) as answer,
        ):
            await anext(answer.aiter_raw())
        await asyncio.sleep(0.1)

    done, [caller] = recorded(handle, story, tmp_path / "t.jsonl")
    assert caller.gone.is_set()
    assert done.failed == 1
    assert '"error": "cancelled"' in (tmp_path / "t.jsonl").read_text()


def test_a_full_disk_ends_the_recording_and_not_the_tunnel(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, before[1]))
    try:
        story = posts(*(chat("hello") for _ in range(4)))
        done, [caller] = recorded(says(*STREAM), story, tmp_path / "t.jsonl")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "No space left" in done.error
    assert len(read_trace(tmp_path / "t.jsonl")) == 1, "no row is torn"
    assert len(caller.requests) == 4


@pytest.mark.parametrize(
    ("texts", "answers"),
    [(("short", "x" * 4000, "short"), ("a", "b", "c")), (("",) * 3, ("a", "x" * 4000, "c"))],
)
def test_bodies_beyond_a_bound_pass_unrecorded(
    texts: tuple[str, ...], answers: tuple[str, ...], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(recorder, "MOST_HELD_BYTES", 3000)
    passed: list[int] = []

    async def handle(caller: Caller) -> None:
        for answer in answers:
            passed.append(len(await caller.ask()))
            await caller.say(CHUNKED, word(answer), LAST, END)

    async def story(at: str) -> None:
        async with httpx.AsyncClient(base_url=at) as client:
            for text, answer in zip(texts, answers, strict=True):
                assert answer in (await client.post(CHAT, json=chat(text))).text
                await asyncio.sleep(0.1)  # what was held is written

    done, _ = recorded(handle, story, tmp_path / "t.jsonl")
    assert (done.requests, done.unheld, done.failed) == (2, 1, 0)
    assert len(read_trace(tmp_path / "t.jsonl")) == 2
    assert max(passed) > 4000 or len(texts[1]) == 0


def test_what_is_not_recorded_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "MOST_HELD_BYTES", 100)
    answer = OK + b"Content-Length: 4000\r\n\r\n" + b"x" * 4000

    async def story(at: str) -> None:
        assert len(await raw_answer(at, GET)) == len(answer)

    done, _ = recorded(says(answer, hangs_up=True), story, tmp_path / "t.jsonl")
    assert (done.requests, done.unheld) == (0, 0)


def test_a_server_that_is_slow_to_connect_holds_back_what_a_client_sends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = b"x" * 50_000_000
    connect = tunnel.Upstream.connect
    sent: list[int] = []

    async def slow(upstream: tunnel.Upstream, protocol: tunnel.ServerSide) -> None:
        await asyncio.sleep(0.5)
        client = protocol.other
        assert isinstance(client, tunnel.ClientSide)
        sent.append(sum(map(len, client._held or [])))
        await connect(upstream, protocol)

    monkeypatch.setattr(tunnel.Upstream, "connect", slow)

    async def story(at: str) -> None:
        async with httpx.AsyncClient(base_url=at) as client:
            await client.post("/v1/files", content=body)

    _, [caller] = recorded(says(OK + b"Content-Length: 0\r\n\r\n"), story, tmp_path / "t.jsonl")
    assert len(caller.requests[0]) > len(body)
    assert 0 < sent[0] < 2_000_000


def test_a_place_that_cannot_be_written_is_said_at_the_start() -> None:
    with pytest.raises(TraceError, match="/dev/full: cannot be written: No space left on device"):
        Recorder(Path("/dev/full"))


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_it_does_not_pass_requests_on_to_itself(host: str, tmp_path: Path) -> None:
    out = tmp_path / "t.jsonl"
    at = ("--upstream", f"http://{host}:8123", "--port", 8123)
    assert "is where this would listen; give another --port" in refused("record", *at, "--out", out)
    assert not out.exists()
