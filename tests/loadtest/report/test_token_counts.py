"""What comes before the first token: counted or not, it is never mistaken in silence."""

from dataclasses import replace
from itertools import count
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from servetwin.app.reports.load_test import render_report
from servetwin.loadtest.endpoint import probe
from servetwin.loadtest.http.exchange import Exchange
from servetwin.loadtest.report.token_counts import token_count_warnings
from servetwin.loadtest.run.client import run_load_test
from servetwin.loadtest.stream.stream_reader import TokenStream, read_stream
from servetwin.sim.records.metrics import SLO
from tests.support.loadtest_server import (
    DONE,
    Reply,
    ScriptedServer,
    delta,
    event,
    stream_of,
    text,
    usage,
)
from tests.support.mock_endpoint import chat, completions, evenly, mocked, plan
from tests.support.mock_load import trace_of


class Firsts(NamedTuple):
    """Stamps, by the number of the read: first event, first token, first sure token, first output.

    By the definitions in the docs, not by what the code happens to say.
    """

    event: int | None
    token: int | None
    sure: int | None
    output: int | None


ROLE = delta(role="assistant", content="")
END = delta("stop")
EMPTY = text("")
MADE = event(choices=[{"text": ""}], usage={"completion_tokens": 1})
STREAMS: dict[str, tuple[tuple[bytes, ...], Firsts]] = {
    "plain": ((text("a"), text("b", "stop"), DONE), Firsts(1, 1, 1, 1)),
    "role first": ((ROLE, delta(content="a"), END), Firsts(1, 2, 2, 2)),
    "comment first": ((b": ping\n\n", text("a", "stop")), Firsts(2, 2, 2, 2)),
    "usage alone first": ((usage(0), text("a", "stop")), Firsts(2, 2, 2, 2)),
    "empty text, no count": ((EMPTY, EMPTY, text("a", "stop"), DONE), Firsts(1, 1, 3, 1)),
    "empty text, a token": ((EMPTY, text("a", "stop"), usage(2)), Firsts(1, 1, 1, 1)),
    "empty text, no token": ((EMPTY, text("a", "stop"), usage(1)), Firsts(1, 2, 2, 2)),
    "empty text, a token at once": ((MADE, text("a", "stop")), Firsts(1, 1, 1, 1)),
    "thoughts": (
        (ROLE, delta(reasoning="a"), delta(reasoning_content="b"), delta(content="c"), END),
        Firsts(1, 2, 2, 4),
    ),
    "a thought and a word": ((delta(reasoning="a", content="b"), END), Firsts(1, 1, 1, 1)),
    "a call after thoughts": (
        (delta(reasoning="a"), delta(tool_calls=[{"index": 0}]), END), Firsts(1, 1, 1, 2),
    ),
    "thoughts alone": ((delta(reasoning="a"), END), Firsts(1, 1, 1, None)),
    "no event": ((b": ping\n\n",), Firsts(None, None, None, None)),
    "native": ((event(text_output="", model_name="m"), event(text_output="a", model_name="m")),
               Firsts(1, 2, 2, 2)),
}  # fmt: skip


def read(*segments: bytes) -> TokenStream:
    return read_stream(Exchange(0, list(enumerate(segments, 1))))


@pytest.mark.parametrize(("segments", "firsts"), STREAMS.values(), ids=STREAMS.keys())
def test_first_things(segments: tuple[bytes, ...], firsts: Firsts) -> None:
    stream = read(*segments)
    token = stream.stamps_ns[0] if stream.stamps_ns else None
    found = Firsts(stream.first_event_ns, token, stream.first_sure_ns, stream.first_output_ns)
    assert found == firsts


def requests(*rows: tuple[float, float, float]) -> pd.DataFrame:
    """Finished ones, sent at 0: first event, first token, first sure token, in ms."""
    frame = pd.DataFrame(rows, columns=["first_event_s", "first_token_s", "first_sure_s"]) / 1e3
    return frame.assign(
        status="finished", tokens_from="usage", first_chunk_told=True, output_tokens=1,
        chunk_s=pd.Series([(0.0,)] * len(frame)), sent_s=0.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([(300, 300, 300)], []),
        ([(286, 300, 300)], []),  # 4.7 % before
        ([(284, 300, 300), (300, 300, 300)], ["EARLY FIRST EVENT in 1 requests: .* 16 ms .*"]),
        ([(0, 300, 300)] * 3, ["EARLY FIRST EVENT in 3 requests: .* 300 ms .* too short"]),
        ([(0, 0, 300)], ["TTFT IN DOUBT for 1 requests: .* 300 ms \\(median\\) later"]),
        (
            [(0, 0, 300), (100, 300, 300)],
            ["TTFT IN DOUBT for 1 .* 300 ms .*", "EARLY FIRST EVENT in 1 .* 200 ms .*"],
        ),
        ([(np.nan, np.nan, np.nan)], []),
    ],
)
def test_early_events_are_said(rows: list[tuple[float, float, float]], said: list[str]) -> None:
    found = token_count_warnings(requests(*rows))
    assert len(found) == len(said)
    for line, pattern in zip(found, said, strict=True):
        assert pd.Series([line]).str.fullmatch(pattern).all(), line


def test_who_failed_is_no_reason_to_doubt() -> None:
    assert token_count_warnings(requests((0, 0, 300)).assign(status="failed")) == []


@pytest.mark.quiet
def test_an_early_role_is_in_the_report_and_not_in_ttft() -> None:
    with mocked(plan("role:at_ms=5", ttft_ms=200, itl_ms=1)) as (server,):
        run = run_load_test(chat(server), evenly(3, 50, 4))
    (line,) = run.summary()["delivered"]["token_doubts"]
    assert line.startswith("EARLY FIRST EVENT in 3 requests")
    assert "EARLY FIRST EVENT in 3 requests" in render_report(run)
    assert (run.requests["ttft_sent_s"] >= 0.2).all()
    assert (run.requests["first_event_s"] - run.requests["sent_s"] < 0.19).all()


def test_empty_texts_that_nobody_explains_put_ttft_in_doubt() -> None:
    faults = plan("empty:count=2,at_ms=0", "usage:send=never", ttft_ms=200, itl_ms=1)
    with mocked(faults) as (server,):
        run = run_load_test(completions(server), evenly(3, 50, 4))
    assert any(
        line.startswith("TTFT IN DOUBT for 3") for line in token_count_warnings(run.requests)
    )


def test_thoughts_have_a_line_of_their_own() -> None:
    """Eight thoughts at 10 ms each after 50 ms: the first word comes at 130 ms, never before."""
    with mocked(plan("reasoning:tokens=8", ttft_ms=50, itl_ms=10)) as (server,):
        run = run_load_test(chat(server), evenly(3, 50, 12))
    assert run.requests["reasoning_tokens"].tolist() == [8, 8, 8]
    assert (run.requests["ttfo_s"] >= 0.129).all()
    report = render_report(run)
    assert "\nTTFO ms" in report
    assert "\nreasoning 24 of 36 output tokens (66.7 %)\n" in report


def test_without_thoughts_there_is_none() -> None:
    with mocked(plan(ttft_ms=5, itl_ms=1)) as (server,):
        run = run_load_test(chat(server), evenly(2, 50, 4))
    assert not {"ttfo_s", "first_output_s", "reasoning_tokens"} & set(run.requests)
    summary = run.summary(SLO(ttfo_s=60.0))
    assert (summary["slo_attainment"], "ttfo_s" in summary) == (1.0, False)
    report = render_report(run)
    assert "TTFO ms" not in report
    assert "reasoning " not in report.partition("TTFT = ")[0]
    asked = render_report(run, SLO(ttfo_s=60.0))
    assert "\nno answer marks its reasoning: the SLO's TTFO is the TTFT\n" in asked


HIDDEN = event(
    choices=[],
    usage={"completion_tokens": 40, "completion_tokens_details": {"reasoning_tokens": 38}},
)


def test_reasoning_that_is_only_counted_lies_before_the_first_event() -> None:
    """38 tokens of 40 came unseen, one with the first event: the time after it holds one."""
    stream = read(delta(content="a"), delta("stop", content="b"), HIDDEN)
    assert (stream.output_tokens, stream.reasoning_tokens, stream.unseen_tokens) == (40, 38, 38)
    assert (stream.first_chunk_tokens, stream.first_chunk_told) == (39, True)
    assert stream.first_output_ns == stream.stamps_ns[0]


@pytest.mark.parametrize("told", [-1, 41, 2.5, None, "9"])
def test_an_impossible_count_of_reasoning_is_not_believed(told: object) -> None:
    details = {"completion_tokens": 2, "completion_tokens_details": {"reasoning_tokens": told}}
    counted = event(choices=[], usage=details)
    stream = read(delta(reasoning="a"), delta("stop", content="b"), counted)
    assert (stream.reasoning_tokens, stream.unseen_tokens) == (1, 0)


def judged(answers: int, buffered: int, tokens: int = 16, unclear: int = 0) -> list[str]:
    """What is said of so many answers of one chunk."""
    frame = requests(*[(300, 300, 300)] * answers).assign(output_tokens=tokens, usage_doubt=None)
    return token_count_warnings(
        frame.assign(
            buffered=pd.Series([True] * buffered + [None] * unclear).reindex(
                range(answers), fill_value=False
            )
        )
    )


def test_few_answers_in_one_piece_are_no_buffer() -> None:
    """A busy client may read a short answer at once; a proxy does so with all."""
    assert judged(100, 4) == []
    (line,) = judged(100, 5)
    assert line.startswith("ANSWER BUFFERED for 5 of 100 requests: ")
    assert judged(100, 0, tokens=2) == []
    assert judged(100, 4, unclear=50)[0].startswith("ANSWER BUFFERED for 54 of 100 requests: ")
    assert judged(100, 2, unclear=50) == []
    assert judged(100, 0, unclear=100) == []
    assert len(judged(100, 1, tokens=2)) == 1  # an object instead of a stream; the rest is short


@pytest.mark.parametrize(
    ("chunks", "tokens", "said"),
    [(10, 14, []), (10, 15, ["TPOT TOO SHORT for 1 requests: their chunks hold 1.5 tokens"])],
)
def test_tokens_without_text_make_no_tpot_too_short(
    chunks: int, tokens: int, said: list[str]
) -> None:
    frame = requests((300, 300, 300)).assign(output_tokens=tokens, first_chunk_told=False)
    found = token_count_warnings(frame.assign(chunk_s=pd.Series([tuple(range(chunks))])))
    assert [line[: len(start)] for line, start in zip(found, said, strict=True)] == said


def test_doubts_are_counted_by_their_reason() -> None:
    doubts = ["negative", "fewer", "fewer", "prompt", "cached", None]
    frame = requests(*[(300, 300, 300)] * 6).assign(
        usage_doubt=pd.Series(doubts), buffered=False, tokens_from=["events"] * 3 + ["usage"] * 3
    )
    assert token_count_warnings(frame) == [
        "USAGE DOUBTED for 3 of 6 requests: the server's count of output tokens is below 0 (1), "
        "below the chunks with text (2); each chunk is counted as one token instead",
        "USAGE DOUBTED for 2 of 6 requests: the server's count of prompt or cached tokens is below "
        "0 or too large; the trace is believed instead",
    ]


def test_answers_that_end_before_the_length_that_was_forced_are_a_warning() -> None:
    """Two tokens for the three that were forced; where no length is, that is no doubt."""
    short = Reply((text("a"), text("b", "stop"), usage(2), DONE))
    replies = count()
    with ScriptedServer(lambda _: short if next(replies) % 4 else stream_of(3)).running() as server:
        endpoint, trace = probe(server.url), trace_of(*(0.02 * n for n in range(8)))
        forced = run_load_test(endpoint, trace)
        free = run_load_test(replace(endpoint, force_length=False), trace)
    (line,) = forced.summary()["delivered"]["token_doubts"]
    assert line.startswith("SHORT ANSWERS: 6 of 8 (75%) ended before the length that was forced")
    assert free.summary()["delivered"]["token_doubts"] == []


def test_usage_above_the_limit_that_was_sent_is_counted_and_the_stream_stands() -> None:
    long = Reply((*(text("many words of text ") for _ in range(3)), usage(40), DONE))
    with ScriptedServer(lambda _: long).running() as server:
        run = run_load_test(probe(server.url), trace_of(0.0, 0.02))
    assert run.requests["output_tokens"].tolist() == [3, 3]
    (line,) = run.summary()["delivered"]["token_doubts"]
    assert line.startswith("USAGE DOUBTED for 2 of 2 requests")
    assert "above the limit that was sent and what the stream shows (2)" in line
