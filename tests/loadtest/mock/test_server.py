"""``servetwin serve --mock`` from end to end: its start, answers, clock, truth and end."""

import asyncio
import json
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servetwin.loadtest.endpoint import probe
from servetwin.loadtest.mock.faults import Freeze
from servetwin.loadtest.mock.server import ServerClock, wait_until
from servetwin.loadtest.mock.truth import Truth
from servetwin.loadtest.run.client import run_load_test
from servetwin.workloads.errors import LoadTestError
from tests.support.command import refused
from tests.support.mock_endpoint import (
    BODY,
    POST,
    TWO,
    address,
    evenly,
    mocked,
    plan,
    spoken,
    truths,
)
from tests.support.mock_process import mock_process
from tests.support.mock_truth import KeptTruth, read_truth, tpot_s, ttft_s

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly_and_the_truth_is_kept(
    number: signal.Signals, tmp_path: Path
) -> None:
    path = tmp_path / "truth.jsonl"
    options = ("--ttft-ms", 5, "--itl-ms", 1, "--model", "mine", "--fault", "never:every=3")
    with mock_process(*options, "--truth", path) as (process, url):
        run_load_test(probe(url), evenly(2, 100, 4))
        with socket.create_connection(("127.0.0.1", port_of(url)), 5) as client:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 99\r\n\r\n")
            process.send_signal(number)
            out, err = process.communicate(timeout=10)
    assert (process.returncode, err) == (0, "")
    assert out.splitlines() == [f"2 requests came; the truth is in {path}"]
    found = read_truth(path)
    assert [truth.outcome for truth in found] == ["complete"] * 2
    assert [truth.tokens for truth in found] == [[1] * 4] * 2


def port_of(url: str) -> int:
    return int(url.removesuffix("/v1").rpartition(":")[2])


def test_streams_in_flight_end_as_stopped(tmp_path: Path) -> None:
    path = tmp_path / "truth.jsonl"
    body = b'{"prompt": "a", "stream": true, "max_tokens": 1000}'
    with (
        mock_process("--ttft-ms", 1, "--itl-ms", 1000, "--truth", path) as (process, url),
        socket.create_connection(("127.0.0.1", port_of(url)), 5) as client,
    ):
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 51\r\n\r\n" + body)
        while b"t0" not in client.recv(65_536):
            pass
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=10)
    assert process.returncode == 0
    (truth,) = read_truth(path)
    assert (truth.outcome, truth.tokens, truth.max_tokens) == ("stopped", [1], 1000)


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refused("serve", "--mock", "--port", port)
    assert line == f"servetwin: cannot listen on 127.0.0.1:{port}: Address already in use"


def test_a_host_that_is_none() -> None:
    line = refused("serve", "--mock", "--host", "no.such.host.invalid")
    assert line.startswith("servetwin: cannot listen on no.such.host.invalid: ")


def test_a_truth_file_that_cannot_be_written(tmp_path: Path) -> None:
    line = refused("serve", "--mock", "--port", 0, "--truth", tmp_path)
    assert line == f"servetwin: --truth {tmp_path}: cannot be written (Is a directory)"


def test_connections_are_refused_from_the_start() -> None:
    with (
        mock_process("--fault", "refuse") as (_, url),
        pytest.raises(LoadTestError, match="Connection refused"),
    ):
        probe(url)


@settings(max_examples=5)
@given(st.sets(st.integers(1, len(TWO) - 1), max_size=8))
def test_cuts_change_no_answer(cuts: set[int]) -> None:
    ends = [*sorted(cuts), len(TWO)]
    pieces = [TWO[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    answers = spoken(*pieces)
    assert answers.count(b"HTTP/1.1 200 ") == 2
    assert answers == spoken(TWO)


@pytest.mark.parametrize(
    "data",
    [
        b"hello\r\n\r\n",
        b"GET / HTTP/1.1\r\nno header\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    ],
)
def test_what_is_no_request(data: bytes) -> None:
    answer = spoken(data)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"connection: close" in answer


def test_an_answer_comes_in_chunks() -> None:
    head, _, body = spoken(TWO).partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head
    size, _, rest = body.partition(b"\r\n")
    assert rest[int(size, 16) :].startswith(b"\r\n0\r\n\r\nHTTP/1.1 200 ")


S = 10**9


def clock(*freezes: tuple[float, float]) -> ServerClock:
    made = ServerClock([Freeze(at_s=at_s, for_s=for_s) for at_s, for_s in freezes])
    made.start(0)
    return made


@pytest.mark.parametrize(
    ("arrival_s", "after_s", "due_s"),
    [
        (0.0, 1.0, 1.0),  # all before
        (1.0, 0.9, 1.9),
        (1.0, 1.0, 4.0),  # due as it begins
        (1.0, 1.5, 4.5),  # half of it before, half after
        (2.5, 0.0, 4.0),  # came in it
        (2.5, 0.5, 4.5),
        (3.999, 0.5, 4.5),
        (4.0, 0.5, 4.5),  # all after
        (5.0, 6.0, 12.0),  # over the second one, of 1 s at 10 s
        (1.0, 8.0, 12.0),  # over both
    ],
)
def test_a_freeze_makes_late_what_was_due(arrival_s: float, after_s: float, due_s: float) -> None:
    frozen = clock((10, 1), (2, 2))
    assert frozen.due_ns(round(arrival_s * S), after_s) == pytest.approx(due_s * S)


def test_freezes_that_overlap_are_one() -> None:
    assert clock((2, 2), (3, 2), (3.5, 0.1)).due_ns(S, 2.0) == 6 * S


def test_before_the_first_request_nothing_freezes() -> None:
    idle = ServerClock([Freeze(at_s=0, for_s=5)])
    assert idle.due_ns(7 * S, 1.0) == 8 * S
    idle.start(9 * S)
    idle.start(20 * S)
    assert idle.due_ns(9 * S, 1.0) == 15 * S


freezes = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=4)


@given(freezes, st.lists(st.integers(0, 40), min_size=1, max_size=10), st.integers(0, 10))
def test_order_is_kept_and_nothing_is_due_in_a_freeze(
    standing: list[tuple[int, int]], arrivals_s: list[int], after_s: int
) -> None:
    frozen = clock(*standing)
    due_s = [frozen.due_ns(at_s * S, after_s) / S for at_s in sorted(arrivals_s)]
    assert due_s == sorted(due_s)
    for at_s, for_s in standing:
        assert not any(at_s <= due < at_s + for_s for due in due_s)
    for arrival_s, due in zip(sorted(arrivals_s), due_s, strict=True):
        stood = {
            second
            for at_s, for_s in standing
            for second in range(max(at_s, arrival_s), at_s + for_s)
            if second < due
        }
        assert due - arrival_s == after_s + len(stood)


def test_a_wait_is_never_short_and_ends_when_the_client_leaves() -> None:
    async def story() -> list[bool]:
        left = asyncio.get_running_loop().create_future()
        waits = [await wait_until(time.perf_counter_ns() + ms * 10**6, left) for ms in (-1, 0)]
        due_ns = time.perf_counter_ns() + 5_000_000
        waits.append(await wait_until(due_ns, left) and time.perf_counter_ns() >= due_ns)
        asyncio.get_running_loop().call_later(0.005, left.set_result, None)
        return [*waits, await wait_until(due_ns + 10**12, left), await wait_until(0, left)]

    assert asyncio.run(story()) == [True, True, True, False, False]


def test_the_truth_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "truth.jsonl"
    log = KeptTruth(path)
    truth = Truth("mock-0", 1_000_000_000, 8)
    log.begin(truth)
    truth.wrote(2, 1_300_000_000, 1_310_000_000)
    truth.wrote(3, 1_400_000_000, 1_430_000_000)
    log.end(truth, "cut", 1_500_000_000)
    log.end(truth, "left", 1_600_000_000)
    log.close()
    assert read_truth(path) == log.records == [truth]
    assert (truth.outcome, truth.ended_ns) == ("cut", 1_500_000_000)
    assert ttft_s(truth) == pytest.approx(0.31)
    assert tpot_s(truth) == pytest.approx(0.12 / 3)


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
