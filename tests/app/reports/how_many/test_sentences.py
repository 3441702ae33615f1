"""Answers in one sentence."""

from dataclasses import replace

import pytest

from servetwin.app.reports.how_many import (
    few_words,
    headline,
    sentence,
    spread_sentence,
    table_rows,
)
from servetwin.app.scenario.answers import Answer, CurvePoint
from servetwin.sim.experiments.capacity import SLOTarget
from servetwin.sim.records.metrics import SLO

P99 = SLOTarget(SLO(ttft_s=0.5), 0.99)
BOTH = SLOTarget(SLO(ttft_s=0.5, tpot_s=0.05), 0.95)
MISSED = CurvePoint(3, 1.624, False, (1.4, 2.04), 0, 20, 0.99)
HELD = CurvePoint(4, 0.8, True, (0.7, 0.9), 20, 20, 0.75)
FOUR = Answer("a", "devices", 4, (3, 5), (MISSED, HELD), MISSED, {"h100": 4}, 10.0, 20)


def test_the_answer_is_one_sentence() -> None:
    assert sentence(FOUR, P99, "this trace") == (
        "4 H100s hold p99 TTFT below 500 ms for this trace; 3 miss it: 812 ms [700 to 1,020]."
    )
    assert spread_sentence(FOUR) == ("20 resampled traffic traces need 3 to 5.")


@pytest.mark.parametrize(
    ("answer", "target", "said"),
    [
        (replace(FOUR, what="replicas"), P99, "4 replicas hold p99 TTFT"),
        (replace(FOUR, devices={"AMD EPYC": 4}), P99, "4 x AMD EPYC hold"),
        (replace(FOUR, devices={"h100": 2, "l40s": 2}), P99, "4 devices hold"),
        (
            replace(FOUR, count=1, points=(replace(HELD, count=1),), beyond=None),
            P99,
            "1 H100 holds p99 TTFT below 500 ms for x: 400 ms [350 to 450].",
        ),
        (FOUR, BOTH, "TTFT 500 ms, TPOT 50 ms for 95 % of the requests for x; 3 miss it: 162 % of"),
        (
            replace(FOUR, beyond=replace(MISSED, load=1.2)),
            P99,
            "3 are overloaded: load is 20 % above their capacity.",
        ),
        (
            replace(FOUR, count=None, beyond=MISSED),
            P99,
            "No number of servers holds p99 TTFT below 500 ms for x, not even 3 H100s: 812 ms",
        ),
        (
            replace(FOUR, what="users"),
            P99,
            "4 users at a time are served with p99 TTFT below 500 ms",
        ),
        (replace(FOUR, what="users", count=0), P99, "Not even 1 user is served with p99 TTFT"),
        (
            replace(FOUR, what="users", beyond=None),
            P99,
            "by 4 H100s: 400 ms [350 to 450]; more were not tried.",
        ),
        (replace(FOUR, what="rate", count=3.5461), P99, "3.546 requests/s are served with p99"),
        (replace(FOUR, what="rate", count=0), P99, "No rate holds p99 TTFT below 500 ms"),
        (Answer("a", "users", problem="does not fit"), P99, "No answer: does not fit."),
    ],
)
def test_other_answers(answer: Answer, target: SLOTarget, said: str) -> None:
    assert said in sentence(answer, target, "x")


@pytest.mark.parametrize(
    ("interval", "said"),
    [
        ((4, 4), "All 20 resampled traffic traces need 4."),
        ((4, None), "20 resampled traffic traces need 4 or more."),
        ((None, None), "need more than any that was tried"),
        (None, ""),
    ],
)
def test_the_spread_of_other_traffic(
    interval: tuple[float | None, float | None] | None, said: str
) -> None:
    words = spread_sentence(replace(FOUR, interval=interval))
    assert said in words
    assert bool(words) is bool(said)


def test_few_requests_are_named() -> None:
    assert few_words(P99, 240).startswith("Only 2 of 240 requests may miss")
    assert few_words(P99, 1000) == ""


def test_several_candidates_are_named_and_columns_that_all_lack_are_left_out() -> None:
    other = Answer("b", "devices", problem="weights do not fit")
    assert headline([other, FOUR], P99, "x").startswith("a: 4 H100s hold")
    first, second = table_rows([FOUR, other], P99)
    assert first["GPUs"] == "4"
    assert first["nearest miss"] == "3: 812 ms [700 to 1,020]"
    assert (second["GPUs"], second["problem"]) == ("", "weights do not fit")
    assert "problem" not in table_rows([FOUR], P99)[0]
