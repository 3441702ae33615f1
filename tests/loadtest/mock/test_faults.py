"""The client's figures against the truth, over streams that are easily misread or broken.

The rows are those on which load testers disagree: 8 requests at 4/s, 16 tokens, the first after
300 ms, then one every 40 ms. What the client says is compared with what each server noted when it
wrote, so that a busy machine delays both.

Nine rows run at once. All 26 would keep a slow core half busy, and their chunks would wait for each
other: the medians of TTFT were then 3 to 6 ms late, and 1 to 2.5 ms with a third of the rows.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from servetwin.app.reports.load_test import render_report
from servetwin.loadtest.mock.truth import Truth
from servetwin.loadtest.report.token_counts import token_count_warnings
from servetwin.loadtest.run.client import run_load_test
from servetwin.sim.records.run import Run
from tests.support.mock_endpoint import chat, completions, evenly, load_all, mocked, plan, truths
from tests.support.mock_load import refused_for_s
from tests.support.mock_truth import tpot_s, ttft_s

pytestmark = pytest.mark.quiet

COUNT, RATE_PER_S, TOKENS = 8, 4.0, 16
TTFT_MS, ITL_MS = 300.0, 40.0


@dataclass(frozen=True)
class Row:
    """Faults, and what is right beside what the truth log tells."""

    faults: tuple[str, ...]
    api: str = "chat"
    failure: str | None = None
    tokens: int = TOKENS
    tpot_factor: float = 1.0
    tokens_from: str = "usage"


def half_failing(fault: str, failure: str) -> Row:
    return Row((fault,), failure=failure)


MATRIX = {
    "plain": Row(()),
    "role-only chunk at 50 ms": Row(("role",)),
    "two empty chunks at 0 ms": Row(("empty",)),
    "first 8 tokens as reasoning_content": Row(("reasoning",)),
    # the server does not say how many tokens came first: 480 ms are divided by 15, not by 12
    "4 tokens per chunk, usage sent": Row(("chunks",), tpot_factor=12 / 15),
    # nor how many there are: 4 chunks are counted, and TPOT is the gap between them
    "4 tokens per chunk, no usage": Row(
        ("chunks", "usage"), tokens=4, tpot_factor=4, tokens_from="events"
    ),
    "SSE comments": Row(("comments",)),
    "CRLF line ends": Row(("crlf",)),
    "events and characters cut across segments": Row(("split",)),
    "no [DONE]": Row(("no-done",)),
    "every 2nd cut after 8 tokens": half_failing("cut:every=2,after=8", "broken_stream"),
    "every 2nd: error object, then closed": half_failing("error:every=2", "sse_error"),
    "every 2nd: 500": half_failing("status:every=2", "http_5xx"),
    "every 2nd: 429, Retry-After 1": half_failing(
        "status:code=429,retry_after_s=1,every=2", "http_429"
    ),
}
MORE = {
    "4 tokens per chunk, usage each time": Row(("chunks", "usage:send=each")),
    "4 tokens per chunk, token ids": Row(("chunks:ids=true",)),
    "4 tokens per chunk, token ids, no usage": Row(
        ("chunks:ids=true", "usage"), tokens_from="token_ids"
    ),
    "no usage": Row(("usage",), tokens_from="events"),
    "all at once": Row(
        ("role", "empty", "reasoning:channel=reasoning", "comments", "split", "crlf", "no-done")
    ),
    "completions": Row((), api="completions"),
    "completions, two empty chunks at 0 ms": Row(("empty",), api="completions"),
    "completions, cut across segments": Row(("split", "crlf", "comments"), api="completions"),
    "every 2nd: HTML": half_failing("garbage:every=2", "no_token"),
    "every 2nd: half an event": half_failing("garbage:kind=json,every=2", "broken_stream"),
    "every 2nd never answers": half_failing("never:every=2", "timeout"),
    "slow start": Row(("slow-start:requests=2,extra_ms=300",)),
}
ROWS = {**MATRIX, **MORE}
MESSAGES = {
    "sse_error": "the mock is set to fail",
    "http_5xx": "HTTP 500: the mock is set to answer 500",
    "http_429": "HTTP 429 (Retry-After: 1): the mock is set to answer 429",
    "timeout": "no complete answer within 2.5 s",
}


class Measured(NamedTuple):
    requests: pd.DataFrame
    first_messages: dict[str, str]
    truths: dict[str, Truth]

    @property
    def finished(self) -> pd.DataFrame:
        return self.requests[self.requests["status"] == "finished"]

    def true(self, request: pd.Series) -> Truth:
        return self.truths[request["response_id"]]


@pytest.fixture(scope="module")
def measured() -> dict[str, Measured]:
    return {name: row for part in range(3) for name, row in run_rows(list(ROWS)[part::3]).items()}


def run_rows(names: list[str]) -> dict[str, Measured]:
    """Run the load of each of these rows at the same time."""
    plans = [plan(*ROWS[name].faults, ttft_ms=TTFT_MS, itl_ms=ITL_MS) for name in names]
    with mocked(*plans) as servers:
        by_row = dict(zip(names, servers, strict=True))
        endpoints = {
            name: (chat if ROWS[name].api == "chat" else completions)(server)
            for name, server in by_row.items()
        }
        trace, apart_s = evenly(COUNT, RATE_PER_S, TOKENS), 1 / RATE_PER_S / len(names)
        runs = load_all(endpoints, trace, apart_s, timeout_s=2.5)
    return {name: Measured(*runs[name], truths(server)) for name, server in by_row.items()}


@pytest.fixture(params=ROWS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_matrix_is_whole() -> None:
    assert len(MATRIX) == 14


def test_nothing_is_lost_and_failures_have_their_class(
    measured: dict[str, Measured], name: str
) -> None:
    failed = ["", ROWS[name].failure or ""] * (COUNT // 2)
    found = measured[name].requests.sort_values("scheduled_s")
    assert found["error"].fillna("").tolist() == failed
    statuses = {"": "finished", "http_429": "refused"}
    assert found["status"].tolist() == [statuses.get(error, "failed") for error in failed]
    for kind, message in measured[name].first_messages.items():
        assert message == MESSAGES.get(kind, message)


def test_token_counts_are_exact(measured: dict[str, Measured], name: str) -> None:
    finished = measured[name].finished
    assert set(finished["output_tokens"]) == {ROWS[name].tokens}
    assert set(finished["tokens_from"]) == {ROWS[name].tokens_from}
    for _, request in finished.iterrows():
        assert sum(measured[name].true(request).tokens) == TOKENS
        assert len(request["chunk_s"]) == len(measured[name].true(request).tokens)


def test_failed_streams_keep_the_tokens_that_came(measured: dict[str, Measured]) -> None:
    for name in ("every 2nd cut after 8 tokens", "every 2nd: error object, then closed"):
        failed = measured[name].requests.query("status == 'failed'")
        assert failed["output_tokens"].tolist() == [8] * 4


def test_ttft_is_the_servers_within_5_ms(measured: dict[str, Measured], name: str) -> None:
    """The median over the requests; no moment of a busy machine decides."""
    finished = measured[name].finished
    errors_s = [
        request["ttft_sent_s"] - ttft_s(measured[name].true(request))
        for _, request in finished.iterrows()
    ]
    assert min(errors_s) > 0  # nothing is seen before it is written
    assert np.median(errors_s) < 0.005


def test_tpot_is_the_servers_within_2_percent(measured: dict[str, Measured], name: str) -> None:
    ratios = [
        request["tpot_s"] / tpot_s(measured[name].true(request))
        for _, request in measured[name].finished.iterrows()
    ]
    assert np.median(ratios) == pytest.approx(ROWS[name].tpot_factor, rel=0.02)


def test_the_servers_were_what_they_were_told_to_be(measured: dict[str, Measured]) -> None:
    """Else the rest would compare nothing with nothing: never early, and due as planned."""
    for name in ROWS.keys() - {"slow start"}:
        whole = [truth for truth in measured[name].truths.values() if sum(truth.tokens) == TOKENS]
        assert len(whole) == (COUNT if ROWS[name].failure is None else COUNT // 2)
        for truth in whole:
            late_ns = np.subtract(truth.written_ns, truth.due_ns)
            assert min(late_ns) >= 0
            assert (truth.due_ns[0] - truth.arrival_ns) / 1e6 == pytest.approx(TTFT_MS)
            decode_ms = (truth.due_ns[-1] - truth.due_ns[0]) / 1e6
            assert decode_ms / sum(truth.tokens[1:]) == pytest.approx(ITL_MS)


def test_a_slow_start_is_slow_for_the_first_ones_only(measured: dict[str, Measured]) -> None:
    due_ms = [
        (truth.due_ns[0] - truth.arrival_ns) / 1e6
        for truth in measured["slow start"].truths.values()
    ]
    assert due_ms == pytest.approx([2 * TTFT_MS] * 2 + [TTFT_MS] * 6)


DOUBTS = {
    "plain": [],
    "4 tokens per chunk, usage sent": [
        "TPOT TOO SHORT for 8 requests: their chunks hold 4 tokens on average, the server does not "
        "say how many the first one holds, and one is assumed"
    ],
    "4 tokens per chunk, no usage": [
        "TOKENS GUESSED for 8 requests: without usage, each chunk is counted as one token, and "
        "TPOT is the gap between chunks"
    ],
    "4 tokens per chunk, usage each time": [],
    "4 tokens per chunk, token ids": [],
    "4 tokens per chunk, token ids, no usage": [],
}


@pytest.mark.parametrize(("row", "warnings"), DOUBTS.items())
def test_guesses_are_marked(measured: dict[str, Measured], row: str, warnings: list[str]) -> None:
    assert token_count_warnings(measured[row].requests) == warnings


def test_guesses_stand_in_the_report() -> None:
    with mocked(plan("chunks:tokens=2", ttft_ms=5, itl_ms=1)) as (server,):
        run = run_load_test(completions(server), evenly(2, 100, 4))
    said = " ".join(render_report(run).split())
    (doubt,) = run.summary()["delivered"]["token_doubts"]
    assert doubt.startswith("TPOT TOO SHORT for 2 requests: their chunks hold 2 tokens on average")
    assert doubt in said


def test_a_freeze_is_seen_by_every_request_due_in_it() -> None:
    """1 s at second 0.5: no request due in it has its first token before second 1.5."""
    frozen = plan("freeze:at_s=0.5,for_s=1", ttft_ms=50, itl_ms=10)
    with mocked(frozen) as (server,):
        # Most requests come after it: those that it holds back are answered all at once.
        run = run_load_test(completions(server), evenly(80, 25, 4))
    assert run.requests["status"].tolist() == ["finished"] * 80
    zero_ns = run.meta["clock_zero_perf_counter_s"] * 1e9
    known = truths(server)
    thaw_s = (min(t.arrival_ns for t in known.values()) - zero_ns) / 1e9 + 1.5
    due_in_it = run.requests.query("0.46 <= scheduled_s < 1.49")
    assert len(due_in_it) > 22
    for _, request in due_in_it.iterrows():
        assert request["ttft_s"] >= thaw_s - request["scheduled_s"]
    assert_true_ttft(run, known)
    before_and_after = run.requests.query("scheduled_s < 0.4 or scheduled_s > 1.52")
    assert before_and_after["ttft_s"].median() < 0.5


def assert_true_ttft(run: Run, known: dict[str, Truth]) -> None:
    errors_s = [
        request["ttft_sent_s"] - ttft_s(known[request["response_id"]])
        for _, request in run.requests.iterrows()
    ]
    assert min(errors_s) > 0
    assert np.median(errors_s) < 0.005


def test_refused_connections_end_the_test_and_are_counted() -> None:
    with mocked(plan("refuse:after=3", ttft_ms=5, itl_ms=1)) as (server,):
        trace = evenly(20, 20, 3)
        requests, messages = load_all({"it": completions(server)}, trace, give_up_after_s=0.175)[
            "it"
        ]
    errors = requests["error"].value_counts().to_dict()
    assert 0.175 <= refused_for_s(requests) < 0.7, "not all of them were refused"
    assert errors == {"connect": errors["connect"], "cancelled": 17 - errors["connect"]}
    assert (requests["status"] == "finished").sum() == 3
    assert messages["connect"] == f"{server_name(server.url)}: Connection refused"


def server_name(url: str) -> str:
    return url.removeprefix("http://")
