"""A load test as a whole: how requests end, what is recorded, and what is stored."""

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest

from servetwin.loadtest.endpoint import probe
from servetwin.loadtest.plan.users import with_users
from servetwin.loadtest.report.records import EXTRA_COLUMNS
from servetwin.loadtest.run.client import LoadOptions, Progress, run_load_test
from servetwin.loadtest.run.dispatcher import RECONNECT_S
from servetwin.sim.records.metrics import REQUEST_COLUMNS
from servetwin.sim.records.run import Run, load_run
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.loadtest_server import (
    DONE,
    Reply,
    Script,
    ScriptedServer,
    delta,
    event,
    stream_of,
    text,
    usage,
)
from tests.support.mock_load import outcome, refused_for_s, trace_of
from tests.support.prompt_ids import prompt_token_ids

KEY = "sk-very-secret-0123456789"
THREE = (text("a"), text("b"), text("c", "length"))


def load(
    script: Script, trace: Trace, hold_until: int = 0, **options: Any
) -> tuple[Run, ScriptedServer]:
    with ScriptedServer(script, hold_until).running() as server:
        run = run_load_test(probe(server.url), trace, options=LoadOptions(**options))
    return run, server


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
        prompt_token_ids(request, 1000, salt=run.meta["prompt_salt"])
        for request in trace_of(*arrivals)
    ]
    assert run.requests["scheduled_s"].tolist() == arrivals
    assert (run.requests["sent_s"] >= run.requests["scheduled_s"]).all()
    zero_s = run.meta["clock_zero_perf_counter_s"]
    at_server_s = np.array([arrival.at_s for arrival in server.arrivals]) - zero_s
    assert (at_server_s >= run.requests["sent_s"]).all()
    assert (at_server_s[-1] < run.requests["first_token_s"]).all()
    assert (run.requests["status"] == "finished").all()


@pytest.mark.parametrize("processes", [1, 2])
def test_the_prompts_of_a_run_are_new_unless_its_salt_is_stated(processes: int) -> None:
    """What a run shares is in its trace alone: here a first block, in every run."""
    shared = [Request(f"r{n}", 0.02 * n, 9, 2, (7,), 4) for n in range(4)]
    trace, options = Trace(tuple(shared), "shared"), LoadOptions(processes=processes)
    with ScriptedServer(lambda body: stream_of(2)).running() as server:
        fresh = probe(server.url)
        stated = probe(server.url, salt="again")
        salts = [
            run_load_test(endpoint, trace, options=options).meta["prompt_salt"]
            for endpoint in (fresh, fresh, stated, stated)
        ]
    sent = [arrival.body["prompt"] for arrival in server.arrivals]
    runs = [sorted(sent[n : n + 4]) for n in range(0, 16, 4)]
    assert all(len({tuple(ids[:4]) for ids in prompts}) == 1 for prompts in runs)
    assert all(len({tuple(ids[4:]) for ids in prompts}) == 4 for prompts in runs)
    assert runs[2] == runs[3]
    assert salts[2:] == ["again", "again"]
    assert len({tuple(prompts[0][:4]) for prompts in runs}) == 3
    assert len(set(salts)) == 3


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
    """Killed at the fourth request: two are whole, the third breaks, then nothing listens."""
    trace = trace_of(*(index * 0.1 for index in range(30)))
    with ScriptedServer(lambda body: stream_of(3)).running() as server:

        def killing(state: Progress) -> None:
            if server.port and len(server.arrivals) >= 3:
                server.kill()

        options = LoadOptions(give_up_after_s=0.35, progress_every_s=0.01)
        run = run_load_test(probe(server.url), trace, options=options, on_progress=killing)
    counts = run.summary()["requests"]
    failures = outcome(run)["failures"]
    assert counts["finished"] >= 2
    assert 0.35 <= refused_for_s(run.requests) < 0.35 + 1.0, "what was sent in a stall may follow"
    assert failures["cancelled"] == counts["cancelled"] >= 1
    assert counts["finished"] + sum(failures.values()) == len(trace)
    unsent = run.requests[run.requests["status"] == "cancelled"]
    assert unsent["sent_s"].isna().all()
    reason = "the endpoint was gone (no connection for 0.35 s)"
    assert outcome(run)["stopped"] == reason
    assert outcome(run)["first_messages"]["cancelled"] == f"not sent: {reason}"


@pytest.mark.parametrize(
    "how", [{}, {"processes": 2}, {"give_up_after_s": None}, {"concurrency": 4}], ids=str
)
def test_a_server_that_restarts_costs_the_requests_of_that_time(how: dict[str, Any]) -> None:
    """A request that was sent while the server was there was answered, on a busy machine too."""
    away = iter([0.3])
    trace = trace_of(*(index * 0.01 for index in range(120)))
    if "concurrency" in how:
        trace = with_users(trace, 4, think=None, ramp_up_s=0.0, seed=0)

    def restarting(body: dict[str, Any]) -> Reply:
        if len(server.arrivals) >= 20:
            for away_s in away:
                server.restart(away_s)
        return stream_of(2)

    with ScriptedServer(restarting).running() as server:
        run = run_load_test(probe(server.url), trace, options=LoadOptions(**how))
    (gap,) = outcome(run)["outages"]
    assert outcome(run)["stopped"] is None
    assert gap["to_s"] is not None
    lost = run.requests[run.requests["status"] != "finished"]
    assert set(lost["error"]) == {"connect"}
    assert gap["lost"] == len(lost) >= 1
    assert lost["sent_s"].between(gap["from_s"], gap["to_s"], inclusive="left").all()
    if "concurrency" in how:
        assert len(lost) <= 4 * (1 + (gap["to_s"] - gap["from_s"]) / RECONNECT_S)


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


Answer = Callable[[httpx.Request], httpx.Response]


def test_too_long_requests_are_noted() -> None:
    requests = (Request("a", 0.0, 4000, 97), Request("b", 0.0, 4000, 96))
    run, _ = load(lambda body: stream_of(1), Trace(requests, "made.jsonl"))
    assert run.scenario["notes"] == ["1 requests are longer than max_model_len 4096"]


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


def test_a_request_of_which_several_answers_are_wanted_is_refused() -> None:
    trace = Trace((Request("a", 0.0, 8, 4), Request("b", 0.0, 8, 4, samples=3)), "several")
    with pytest.raises(LoadTestError, match=r"^request b: it wants 3 answers"):
        load(lambda request: stream_of(1), trace)
