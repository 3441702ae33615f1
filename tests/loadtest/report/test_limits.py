"""Conditions that fail a load test, and limits as people write them."""

from dataclasses import replace

import pytest

from servetwin.loadtest.report.limits import (
    DEFAULT,
    METRICS,
    failed_line,
    judge_conditions,
    parse_conditions,
    parse_slo,
    parse_target,
    parse_thresholds,
)
from servetwin.sim.records.metrics import SLO, derive
from servetwin.workloads.errors import LoadTestError
from tests.support.known_run import hundred

FIGURES = {
    "ttft_p99": (0.2, "ttft_p99>199ms", "ttft_p99>201ms"),
    "ttft": (0.2, "ttft>0.199s", "TTFT_mean > 0.201 s"),
    "ttft_max": (0.2, "ttft.max>199ms", "ttft.max>201ms"),
    "tpot": (0.05, "tpot_p50>49ms", "tpot_p50>51ms"),
    "itl": (0.05, "itl_p99>49999us", "itl_p99>50001us"),
    "e2e": (0.4, "e2e_p95>399ms", "e2e_p95>401ms"),
    "failed": (0.02, "failed>1%", "failed>2.1%"),
    "finished": (0.98, "finished<99%", "finished<98%"),
    "slo_attainment": (0.98, "slo_attainment<99%", "slo_attainment<97.9%"),
    "goodput": (98 / 99.4, "goodput<1/s", "goodput<0.9"),
    "throughput": (490 / 99.4, "throughput<5tokens/s", "throughput<4"),
    "request_throughput": (98 / 99.4, "request_throughput<1/s", "request_throughput<0.9/s"),
}


@pytest.mark.parametrize("metric", FIGURES)
def test_the_figure_on_the_wrong_side_of_its_limit_fails(metric: str) -> None:
    value, fails, holds = FIGURES[metric]
    conditions = parse_conditions([f"{fails},{holds}"], slo=True)
    *_, wrong, right = judge_conditions(conditions, hundred(failed=2), SLO(e2e_s=1.0))
    assert wrong.value == right.value == pytest.approx(value, rel=1e-3)
    assert (wrong.failed, right.failed) == (True, False)
    assert (wrong.condition, right.condition) == (fails, holds)


def test_the_first_visible_token_has_limits_of_all_requests_too() -> None:
    conditions = parse_conditions(["ttfo_p99>250ms,ttfo>450ms"], slo=False)
    plain = hundred()
    thinking = replace(plain, requests=derive(plain.requests.assign(
        first_output_s=plain.requests["first_token_s"] + 0.1, reasoning_tokens=2
    )))  # fmt: skip
    assert failed_line(judge_conditions(conditions, thinking)) == "ttfo_p99 300 ms (limit 250 ms)"
    assert failed_line(judge_conditions(conditions, plain)) is None, "the first token is visible"
    _, [*_, of_all] = parse_thresholds("ttfo_p99=150ms", [])
    assert failed_line(judge_conditions([of_all], plain)) == "ttft_p99 200 ms (limit 150 ms)"


def test_one_line_says_what_failed_and_by_how_much() -> None:
    conditions = parse_conditions(["ttft_p99>150ms", "finished<99%", "e2e>1s"], slo=False)
    findings = judge_conditions(conditions, hundred(failed=3))
    assert failed_line(findings) == ("ttft_p99 200 ms (limit 150 ms); finished 97 % (limit 99 %)")
    assert failed_line(findings[2:]) is None


@pytest.mark.parametrize(("failed", "fails"), [(10, False), (11, True)])
def test_more_than_a_tenth_of_failures_fails_unless_something_else_is_said(
    failed: int, fails: bool
) -> None:
    assert parse_conditions([], slo=False) == [DEFAULT]
    assert parse_conditions(["ttft>1s"], slo=False)[0] == DEFAULT
    assert DEFAULT not in parse_conditions(["failed>50%"], slo=False)
    assert DEFAULT not in parse_conditions(["finished<5%"], slo=False)
    findings = judge_conditions([DEFAULT], hundred(failed=failed))
    assert (failed_line(findings) is not None) == fails


def test_a_figure_that_no_request_has_fails() -> None:
    conditions = parse_conditions(["tpot_p99>50ms", "failed>100%"], slo=False)
    findings = judge_conditions(conditions, hundred(failed=100))
    assert [finding.failed for finding in findings] == [True, False]
    assert failed_line(findings) == "tpot_p99: no request has it"


def test_requests_on_which_a_client_hung_up_did_not_fail() -> None:
    hung_up = hundred(failed=50)
    hung_up.requests.loc[:49, "error"] = "cancelled_by_test"
    (finding,) = judge_conditions([DEFAULT], hung_up)
    assert finding.value == 0


def test_warm_up_is_in_no_condition() -> None:
    warm = hundred(failed=20)
    warm.requests["warm_up"] = warm.requests["status"] == "failed"
    assert failed_line(judge_conditions([DEFAULT], warm)) is None


UNREADABLE = {
    "failed": "not METRIC>LIMIT or METRIC<LIMIT; write for example failed>1%",
    "": "not METRIC>LIMIT or METRIC<LIMIT",
    "failed>": "not METRIC>LIMIT",
    "failed>-1%": "not METRIC>LIMIT",
    "failed>1e400%": "not METRIC>LIMIT",
    "failed>1": "a limit in % is needed; write for example failed>1%",
    "failed>1s": "a limit in % is needed",
    "failed>101%": "the limit is impossible; write for example failed>1%",
    "faild>1%": "unknown metric 'faild'; did you mean 'failed'?",
    "ttft_p98>1s": "unknown metric 'ttft_p98'; did you mean 'ttft_p9",
    "ttft_p99>500": "a limit in us or ms or s is needed; write for example ttft_p99>500ms",
    "ttft_p99<500ms": "would fail what is good; write for example ttft_p99>500ms",
    "slo_attainment>99%": "would fail what is good; write for example slo_attainment<99%",
    "throughput>5": "would fail what is good; write for example throughput<1000tokens/s",
    f"ttft>{'9' * 400}s": "the limit is impossible",
}


@pytest.mark.parametrize("text", UNREADABLE)
def test_what_cannot_be_read_says_what_would_be_right(text: str) -> None:
    with pytest.raises(LoadTestError) as error:
        parse_conditions(["e2e>1s", text], slo=True)
    assert f"--fail-if {text!r}: {UNREADABLE[text]}" in str(error.value)


@pytest.mark.parametrize("text", ["goodput<1", "slo_attainment<99%"])
def test_what_an_slo_decides_needs_one(text: str) -> None:
    with pytest.raises(LoadTestError, match="needs --slo, such as ttft=500ms"):
        parse_conditions([text], slo=False)


@pytest.mark.parametrize("metric", METRICS)
def test_the_example_of_every_metric_is_right(metric: str) -> None:
    quantity = METRICS[metric]
    example = f"{metric}{quantity.wrong}{quantity.example}"
    (condition,) = parse_conditions(["failed>1%", example], slo=True)[1:]
    assert condition.metric == metric
    (finding,) = judge_conditions([condition], hundred(), SLO(ttft_s=1.0))
    assert finding.value is not None


@pytest.mark.parametrize(
    ("text", "attainment", "target"),
    [
        ("ttft=1s", None, (SLO(ttft_s=1.0), 0.99)),
        ("ttft=1s", 0.9, (SLO(ttft_s=1.0), 0.9)),
        ("ttft_p95=1s, tpot.p95 = 50ms", None, (SLO(ttft_s=1.0, tpot_s=0.05), 0.95)),
    ],
)
def test_a_search_has_limits_and_one_share(
    text: str, attainment: float | None, target: tuple[SLO, float]
) -> None:
    assert parse_target(text, attainment) == target


@pytest.mark.parametrize(
    ("text", "attainment"),
    [
        ("ttft_p95=1s,tpot_p99=50ms", None),
        ("ttft_p95=1s,tpot=50ms", None),
        ("ttft_p95=1s", 0.9),
        ("ttft_p0=1s", None),
        ("ttft_p100=1s", None),
    ],
)
def test_a_search_with_two_shares_is_refused(text: str, attainment: float | None) -> None:
    with pytest.raises(LoadTestError, match="a search has one share"):
        parse_target(text, attainment)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("ttft_p98=1s", "--slo 'ttft_p98=1s': unknown metric 'ttft_p98'"),
        ("ttft_p99=1", "a limit in us or ms or s is needed; write for example ttft_p99=500ms"),
        ("ttft_p99=1s,tpot", "'tpot' is not LIMIT=TIME"),
        ("goodput=2", "unknown limit 'goodput'"),
        ("", "--slo"),
    ],
)
def test_a_threshold_that_cannot_be_read_is_named(text: str, complaint: str) -> None:
    with pytest.raises(LoadTestError) as error:
        parse_thresholds(text, [])
    assert complaint in str(error.value)


EXAMPLE = "write for example ttft=500ms,ttfo=2s,tpot=50ms,e2e=2s,task=120s"


@pytest.mark.parametrize(
    ("text", "slo"),
    [
        ("ttft=500ms", SLO(ttft_s=0.5)),
        ("ttft=500ms,tpot=50ms,e2e=2s", SLO(0.5, 0.05, 2.0)),
        (" e2e = 1.5 s , tpot=250us", SLO(tpot_s=0.00025, e2e_s=1.5)),
        ("ttfo=2s", SLO(ttfo_s=2.0)),
    ],
)
def test_limits_as_people_write_them(text: str, slo: SLO) -> None:
    found = parse_slo(text)
    for name in ("ttft_s", "tpot_s", "e2e_s", "ttfo_s"):
        assert getattr(found, name) == pytest.approx(getattr(slo, name))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f"--slo: '' is not LIMIT=TIME; {EXAMPLE}"),
        ("itl=5ms", f"--slo 'itl=5ms': unknown limit 'itl'; {EXAMPLE}"),
        ("ttft", f"--slo: 'ttft' is not LIMIT=TIME; {EXAMPLE}"),
        ("ttft=1s,", f"--slo: '' is not LIMIT=TIME; {EXAMPLE}"),
        ("ttft=1s,ttft=2s", f"--slo 'ttft=2s': ttft is given twice; {EXAMPLE}"),
        *(
            (f"ttft{rest}", f"--slo 'ttft{rest}': not a positive time with its unit; {EXAMPLE}")
            for rest in (
                "=",
                "=500",
                "=0ms",
                "=-1s",
                "=nan s",
                "=1m",
                "=1.2.3s",
                "=fast",
                "=" + "9" * 400 + "s",
            )
        ),
    ],
)
def test_limits_that_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(LoadTestError) as caught:
        parse_slo(text)
    assert str(caught.value) == message
