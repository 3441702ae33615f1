import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest

from loadtest.endpoint import Endpoint, probe
from loadtest.plan.schedule import build_schedule
from loadtest.report.records import EXTRA_COLUMNS, delivered
from loadtest.run.client import LoadOptions, Progress, run_load_test
from sim.records.metrics import REQUEST_COLUMNS
from sim.records.run import Run, load_run
from tests.support.loadtest_server import (
    DONE,
    MODELS,
    Reply,
    Script,
    ScriptedServer,
    delta,
    event,
    stream_of,
    text,
    usage,
)
from workloads.errors import LoadTestError
from workloads.generators.prompts import prompt_text, prompt_token_ids
from workloads.request import Request
from workloads.trace import Trace

KEY = "sk-very-secret-0123456789"
THREE = (text("a"), text("b"), text("c", "length"))


def trace_of(*arrivals_s: float, output_tokens: int = 3) -> Trace:
    requests = (
        Request(f"r{index}", at_s, prompt_tokens=7, output_tokens=output_tokens)
        for index, at_s in enumerate(arrivals_s)
    )
    return Trace(tuple(requests), "made.jsonl")


def load(
    script: Script, trace: Trace, hold_until: int = 0, **options: Any
) -> tuple[Run, ScriptedServer]:
    with ScriptedServer(script, hold_until).running() as server:
        run = run_load_test(probe(server.url), trace, options=LoadOptions(**options))
    return run, server


def outcome(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = run.extra["delivered"]
    return found


ENDS: dict[str, tuple[Reply, tuple[str, str | None, int, int]]] = {
    # status, error, output tokens, token chunks
    "whole": (stream_of(3), ("finished", None, 3, 3)),
    "short": (Reply((text("a"), text("b", "stop"), usage(2), DONE)), ("finished", None, 2, 2)),
    "gzip bytes that are none": (
        Reply(THREE, headers={"Content-Encoding": "gzip"}),
        ("failed", "broken_stream", 0, 0),
    ),
    "wrong content type": (
        Reply((*THREE, DONE), headers={"Content-Type": "text/plain"}),
        ("finished", None, 3, 3),
    ),
    "cut": (Reply(THREE[:2], ending="cut"), ("failed", "broken_stream", 2, 2)),
    "cut after DONE": (Reply((*THREE, DONE), ending="cut"), ("finished", None, 3, 3)),
    "ended early": (Reply(THREE[:2]), ("failed", "broken_stream", 2, 2)),
    "error object": (
        Reply((THREE[0], event(error={"message": "out of memory"}))),
        ("failed", "sse_error", 1, 1),
    ),
    "500": (Reply((b"boom",), 500), ("failed", "http_5xx", 0, 0)),
    "400": (Reply((event(error="x"),), 400), ("failed", "http_4xx", 0, 0)),
    "302": (Reply((), 302, {"Location": "/elsewhere"}), ("failed", "http_3xx", 0, 0)),
    "429": (
        Reply((b'{"error": {"message": "queue full"}}',), 429, {"Retry-After": "1"}),
        ("refused", "http_429", 0, 0),
    ),
    "garbage": (Reply((b"\x00\xff\xfe\n\n" * 3,)), ("failed", "no_token", 0, 0)),
    "empty": (Reply(), ("failed", "no_token", 0, 0)),
}


@pytest.mark.parametrize(("reply", "expected"), ENDS.values(), ids=ENDS.keys())
def test_every_end_of_a_request(reply: Reply, expected: tuple[str, str | None, int, int]) -> None:
    run, _ = load(lambda body: reply, trace_of(0.0))
    row = run.requests.iloc[0]
    error = None if pd.isna(row["error"]) else row["error"]
    assert (row["status"], error, row["output_tokens"], len(row["chunk_s"])) == expected
    assert outcome(run)["failures"] == ({error: 1} if error else {})
    assert run.summary()["requests"]["total"] == 1


def test_first_message_of_each_class_is_kept() -> None:
    replies = iter([ENDS["429"][0], ENDS["500"][0], Reply((b"later",), 500), stream_of(3)])
    run, _ = load(lambda body: next(replies), trace_of(0.0, 0.05, 0.1, 0.15))
    assert outcome(run)["failures"] == {"http_5xx": 2, "http_429": 1}
    assert outcome(run)["first_messages"] == {
        "http_429": "HTTP 429 (Retry-After: 1): queue full",
        "http_5xx": "HTTP 500: boom",
    }


def test_the_delivered_load_is_the_schedule() -> None:
    """Order and count are exact; no send waits for an answer, for none comes before the last."""
    arrivals = [0.0, 0.02, 0.04, 0.07, 0.11, 0.13, 0.2, 0.3]
    run, server = load(lambda body: stream_of(2), trace_of(*arrivals), hold_until=8)
    assert [arrival.body["prompt"] for arrival in server.arrivals] == [
        prompt_token_ids(request, 1000) for request in trace_of(*arrivals)
    ]
    assert run.requests["scheduled_s"].tolist() == arrivals
    assert (run.requests["sent_s"] >= run.requests["scheduled_s"]).all()
    zero_s = run.meta["clock_zero_perf_counter_s"]
    at_server_s = np.array([arrival.at_s for arrival in server.arrivals]) - zero_s
    assert (at_server_s >= run.requests["sent_s"]).all()
    assert (at_server_s[-1] < run.requests["first_token_s"]).all()
    assert (run.requests["status"] == "finished").all()


def test_stamps_never_run_backwards() -> None:
    run, _ = load(lambda body: stream_of(5, pause_s=0.01), trace_of(0.0, 0.01, 0.02))
    for row in run.requests.to_dict("records"):
        chunk_s = list(row["chunk_s"])
        stamps = [row["scheduled_s"], row["sent_s"], *chunk_s]
        assert stamps == sorted(stamps)
        assert (row["first_token_s"], row["last_token_s"]) == (chunk_s[0], chunk_s[-1])
        assert row["ttft_sent_s"] == chunk_s[0] - row["sent_s"]
        assert row["tpot_s"] == (chunk_s[-1] - chunk_s[0]) / 4


def test_a_role_chunk_is_not_the_first_token() -> None:
    reply = Reply((delta(role="assistant"), 0.2, delta(content="a"), delta("stop"), DONE))
    run, _ = load(lambda body: reply, trace_of(0.0))
    assert run.requests["ttft_sent_s"][0] >= 0.2


def test_the_run_folder_gives_the_run_back(tmp_path: Path) -> None:
    run, _ = load(lambda body: stream_of(3), trace_of(0.0, 0.05))
    again = load_run(run.save(tmp_path / "run"))
    assert tuple(run.requests.columns) == (*REQUEST_COLUMNS, *EXTRA_COLUMNS)
    assert again.kind == "loadtest"
    assert again.extra == run.extra
    assert again.scenario == run.scenario
    pd.testing.assert_frame_equal(
        again.requests.drop(columns=["chunk_s", "error"]),
        run.requests.drop(columns=["chunk_s", "error"]),
    )
    assert [list(stamps) for stamps in again.requests["chunk_s"]] == [
        list(stamps) for stamps in run.requests["chunk_s"]
    ]


def test_counts_of_the_server_reach_the_records() -> None:
    run, _ = load(lambda body: Reply((*THREE, usage(3, 48, 32), DONE)), trace_of(0.0))
    row = run.requests.iloc[0]
    assert (row["prompt_tokens"], row["cached_tokens"], row["output_tokens"]) == (48, 32, 3)


def test_a_request_over_its_time_is_a_timeout() -> None:
    run, _ = load(lambda body: Reply((THREE[0], 30.0)), trace_of(0.0), timeout_s=0.3)
    row = run.requests.iloc[0]
    assert (row["status"], row["error"], row["output_tokens"]) == ("failed", "timeout", 1)
    assert outcome(run)["first_messages"] == {"timeout": "no complete answer within 0.3 s"}


def test_a_dead_endpoint_ends_the_test_and_keeps_the_records() -> None:
    """Killed at the fourth request: two are whole, the third breaks, then nobody listens."""
    trace = trace_of(*(index * 0.1 for index in range(30)))
    with ScriptedServer(lambda body: stream_of(3)).running() as server:

        def killing(state: Progress) -> None:
            if server.port and len(server.arrivals) >= 3:
                server.kill()

        options = LoadOptions(give_up_after=4, progress_every_s=0.01)
        run = run_load_test(probe(server.url), trace, options=options, on_progress=killing)
    counts = run.summary()["requests"]
    failures = outcome(run)["failures"]
    assert counts["finished"] >= 2
    assert failures["connect"] == 4
    assert failures["cancelled"] == counts["cancelled"] >= 1
    assert counts["finished"] + sum(failures.values()) == len(trace)
    unsent = run.requests[run.requests["status"] == "cancelled"]
    assert unsent["sent_s"].isna().all()
    reason = "the endpoint was gone (4 refused connections in a row)"
    assert outcome(run)["stopped"] == reason
    assert outcome(run)["first_messages"]["cancelled"] == f"not sent: {reason}"


def test_streams_in_flight_break_when_the_server_dies() -> None:
    trace = trace_of(0.0, 0.0, 0.0)
    with ScriptedServer(lambda body: Reply((*THREE[:2], 60.0))).running() as server:

        def killing(state: Progress) -> None:
            if len(server.arrivals) == 3 and state.elapsed_s > 0.3:
                server.kill()

        run = run_load_test(
            probe(server.url),
            trace,
            options=LoadOptions(progress_every_s=0.05),
            on_progress=killing,
        )
    assert run.requests["error"].tolist() == ["broken_stream"] * 3
    assert run.requests["output_tokens"].tolist() == [2, 2, 2]


def test_progress_ends_with_everything_counted() -> None:
    states: list[Progress] = []
    with ScriptedServer(lambda body: ENDS["500"][0]).running() as server:
        run_load_test(probe(server.url), trace_of(0.0, 0.01), on_progress=states.append)
    last = states[-1]
    assert (last.total, last.sent, last.ended, last.failed) == (2, 2, 2, 2)


def test_the_garbage_collector_is_back_on_afterwards() -> None:
    seen: list[bool] = []

    def script(body: dict[str, Any]) -> Reply:
        seen.append(gc.isenabled())
        return stream_of(1)

    load(script, trace_of(0.0))
    assert seen == [False]
    assert gc.isenabled()


def test_the_key_is_sent_but_never_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    replies = iter(
        [
            Reply((f"wrong key {KEY}".encode(),), 401),
            Reply((event(error=f"key {KEY}"),)),
            Reply((f"data: {KEY}\n\n".encode(),)),
            Reply((f"{KEY}\n\n".encode(),)),
        ]
    )
    run, server = load(lambda body: next(replies), trace_of(0.0, 0.05, 0.1, 0.15))
    assert {arrival.headers["authorization"] for arrival in server.arrivals} == {f"Bearer {KEY}"}
    assert outcome(run)["first_messages"]["http_4xx"] == "HTTP 401: wrong key ***"
    folder = run.save(tmp_path / "run")
    assert all(KEY.encode() not in path.read_bytes() for path in folder.iterdir())
    assert KEY not in repr(run)


REQUEST = Request("r0", 0.0, prompt_tokens=5, output_tokens=9)
BODIES: list[tuple[Endpoint, dict[str, Any]]] = [
    (
        Endpoint("http://h/v1", "m", prompt="ids", vocab_size=1000),
        {
            "prompt": prompt_token_ids(REQUEST, 1000),
            "max_tokens": 9,
            "min_tokens": 9,
            "ignore_eos": True,
        },
    ),
    (
        Endpoint("http://h/v1", "m", force_length=False),
        {"prompt": prompt_text(REQUEST), "max_tokens": 9},
    ),
    (
        Endpoint("http://h/v1", "m", api="chat", force_length=False),
        {"messages": [{"role": "user", "content": prompt_text(REQUEST)}], "max_tokens": 9},
    ),
]


@pytest.mark.parametrize(("endpoint", "own"), BODIES)
def test_bodies(endpoint: Endpoint, own: dict[str, Any]) -> None:
    common = {
        "model": "m",
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert json.loads(endpoint.body(REQUEST)) == {**common, **own}


def test_chat_goes_to_its_own_path() -> None:
    reply = Reply((delta(role="assistant"), delta(content="a"), delta("stop"), DONE))
    with ScriptedServer(lambda body: reply).running() as server:
        run = run_load_test(probe(server.url, api="chat"), trace_of(0.0))
    assert [arrival.path for arrival in server.arrivals] == ["/v1/chat/completions"]
    assert run.requests["status"].tolist() == ["finished"]


@pytest.mark.parametrize("shape", ["{}", "{}/", "{}/v1", "{}/v1/"])
def test_probe_finds_what_is_served(shape: str) -> None:
    with ScriptedServer(lambda body: Reply()).running() as server:
        bare = server.url.removeprefix("http://")
        found = [probe(shape.format(server.url)), probe(shape.format(bare))]
    expected = Endpoint(f"{server.url}/v1", "mock", "completions", "ids", 1000, 4096)
    assert found == [expected, expected]


@pytest.mark.parametrize(
    ("asked", "prompt"),
    [
        ({}, "ids"),
        ({"prompt": "text"}, "text"),
        ({"prompt": "ids"}, "ids"),
        ({"api": "chat"}, "text"),
        ({"api": "chat", "prompt": "text"}, "text"),
    ],
)
def test_what_prompts_are_made_of(asked: dict[str, Any], prompt: str) -> None:
    with ScriptedServer(lambda body: Reply()).running() as server:
        assert probe(server.url, **asked).prompt == prompt


Answer = Callable[[httpx.Request], httpx.Response]
TRY = "give the URL of an OpenAI-compatible server, such as http://127.0.0.1:8000/v1"
ASKED = "GET http://h/v1/models"
PROBES: dict[str, tuple[int, Any, dict[str, Any], str]] = {
    "404": (404, {}, {}, f"{ASKED}: answered 404; {TRY}"),
    "401": (401, {}, {}, f"{ASKED}: answered 401; set OPENAI_API_KEY to a key that it accepts"),
    "not JSON": (200, "hello", {}, f"{ASKED}: the answer is no list of models; {TRY}"),
    "a list": (200, [1], {}, f"{ASKED}: the answer is no list of models; {TRY}"),
    "data of a wrong kind": (
        200,
        {"data": 3},
        {},
        f"{ASKED}: the answer is no list of models; {TRY}",
    ),
    "no model": (200, {"data": []}, {}, f"{ASKED}: no model is served there"),
    "another model": (
        200,
        MODELS,
        {"model": "gpt"},
        "--model gpt: not served at http://h/v1; it serves mock",
    ),
    "ids for chat": (
        200,
        MODELS,
        {"api": "chat", "prompt": "ids"},
        "--prompt ids: the chat API takes text only; use --api completions",
    ),
}


@pytest.mark.parametrize(("status", "body", "asked", "message"), PROBES.values(), ids=PROBES)
def test_probe_says_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, status: int, body: Any, asked: dict[str, Any], message: str
) -> None:
    content = body if isinstance(body, str) else json.dumps(body)
    answer = httpx.Response(status, text=content)
    monkeypatch.setattr(httpx.Client, "get", lambda self, url: answer)
    with pytest.raises(LoadTestError) as caught:
        probe("http://h", **asked)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://h", f"'ftp://h' is not an http URL; {TRY}"),
        ("", f"'' is not an http URL; {TRY}"),
        (
            f"http://user:{KEY}@h",
            "the URL must not hold a password; put the key into OPENAI_API_KEY",
        ),
    ],
)
def test_bad_urls(url: str, message: str) -> None:
    with pytest.raises(LoadTestError) as caught:
        probe(url)
    assert str(caught.value) == message


def test_nobody_listens() -> None:
    with ScriptedServer(lambda body: Reply()).running() as server:
        url = server.url
    with pytest.raises(LoadTestError) as caught:
        probe(url)
    assert str(caught.value) == (
        f"GET {url}/v1/models: [Errno 111] Connection refused; is the server running? {TRY}"
    )


def test_the_schedule_is_sorted_and_ties_keep_their_order() -> None:
    schedule = build_schedule(trace_of(0.2, 0.1, 0.1, 0.0), Endpoint("http://h/v1", "m"))
    assert [(send.send_at_s, send.request.request_id) for send in schedule.roots] == [
        (0.0, "r3"),
        (0.1, "r1"),
        (0.1, "r2"),
        (0.2, "r0"),
    ]


def test_an_empty_trace_is_refused() -> None:
    with pytest.raises(LoadTestError, match=r"made\.jsonl: there is no request to send"):
        build_schedule(trace_of(), Endpoint("http://h/v1", "m"))


def test_too_long_requests_are_noted() -> None:
    requests = (Request("a", 0.0, 4000, 97), Request("b", 0.0, 4000, 96))
    run, _ = load(lambda body: stream_of(1), Trace(requests, "made.jsonl"))
    assert run.scenario["notes"] == ["1 requests are longer than max_model_len 4096"]


@pytest.mark.parametrize(
    ("lag_s", "oversleep_s", "ttft_s", "tpot_s", "cpu_share", "limited_by"),
    [
        (0.001, 0.001, 0.1, 0.01, 0.25, []),
        (0.021, 0.001, 0.1, 0.01, 0.25, ["schedule lag p99 21 ms, over 20 ms"]),
        (0.021, 0.001, 3.0, 0.01, 0.25, []),
        (0.031, 0.001, 3.0, 0.01, 0.25, ["schedule lag p99 31 ms, over 30 ms"]),
        (0.001, 0.004, 3.0, 0.001, 0.25, []),
        (0.001, 0.006, 3.0, 0.001, 0.25, ["event loop late p99 6 ms, over 5 ms"]),
        (0.001, 0.011, 3.0, 0.01, 0.25, ["event loop late p99 11 ms, over 10 ms"]),
        (0.001, 0.019, 3.0, 0.05, 0.25, []),
        (0.001, 0.021, 3.0, 0.05, 0.25, ["event loop late p99 21 ms, over 20 ms"]),
        (0.001, 0.021, 3.0, np.nan, 0.25, ["event loop late p99 21 ms, over 20 ms"]),
        (0.001, 0.001, 0.1, 0.01, 0.91, ["CPU 91%"]),
    ],
)
def test_the_verdict_on_the_client(
    lag_s: float,
    oversleep_s: float,
    ttft_s: float,
    tpot_s: float,
    cpu_share: float,
    limited_by: list[str],
) -> None:
    found = delivered(sent_late(lag_s, ttft_s, tpot_s), [oversleep_s] * 5, cpu_share)
    assert found["verdict"] == ("client limited" if limited_by else "client ok")
    assert found["limited_by"] == limited_by
    assert found["offered_per_s"] == 1.0
    assert found["sent_per_s"] == pytest.approx(1.0)
    assert found["client_cpu_share"] == cpu_share


def test_nothing_is_said_of_a_client_that_sent_nothing() -> None:
    found = delivered(sent_late(np.nan, np.nan, np.nan), [0.001], 0.99)
    assert (found["verdict"], found["limited_by"]) == ("nothing sent", [])
    assert found["sent_per_s"] is None


def sent_late(lag_s: float, ttft_s: float, tpot_s: float) -> pd.DataFrame:
    scheduled = np.array([1.0, 2.0, 3.0])
    columns = {"scheduled_s": scheduled, "sent_s": scheduled + lag_s, "error": None}
    return pd.DataFrame({**columns, "ttft_s": ttft_s, "tpot_s": tpot_s})


def test_requests_leave_no_cycles_behind() -> None:
    """The garbage collector is off while the load runs: what only it could free would pile up."""
    left: list[int] = []

    def count(state: Progress) -> None:
        kinds = (httpx.Response, httpx.Request)
        left.append(sum(type(found) in kinds for found in gc.get_objects()))

    gc.collect()
    count(Progress(0, 0, 0, 0, 0))
    with ScriptedServer(lambda body: stream_of(2)).running() as server:
        trace = trace_of(*(index * 0.002 for index in range(100)))
        options = LoadOptions(progress_every_s=10.0)
        run_load_test(probe(server.url), trace, options=options, on_progress=count)
    before, after = left
    assert after < before + 20
