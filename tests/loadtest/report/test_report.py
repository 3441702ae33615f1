"""The report of a load test: what to try, notes, and conditions that fail it."""

from pathlib import Path
from typing import Any

import pytest

from servetwin.app.reports.load_test import LoadTestReport, LoadVerdict, render_report
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
from servetwin.loadtest.report.load_notes import hint, load_warnings
from servetwin.sim.records.metrics import SLO
from servetwin.sim.records.run import Run
from servetwin.workloads.errors import LoadTestError
from tests.support.known_run import run_of


def test_the_whole_report() -> None:
    lines = render_report(run_of(100), SLO(ttft_s=0.5), Path("runs/one")).splitlines()
    latencies = [
        "TTFT ms                200   200   200   200   200   200",
        "TPOT ms                 50    50    50    50    50    50",
        "E2E latency ms         400   400   400   400   400   400",
    ]
    speeds = [
        "decode TPS tokens/s     20    20    20    20    20    20",
        "request TPS tokens/s  12.5  12.5  12.5  12.5  12.5  12.5",
    ]
    head = "                      mean   p50   p90   p95   p99   max"
    assert lines[: lines.index("files: runs/one") + 2] == [
        head,
        *latencies,
        "TTFT from sent ms      100   100   100   100   100   100",
        "chunk gap (ITL) ms      50    50    50    50    50    50",
        *speeds,
        "output throughput 5.03 tokens/s, 1.006 requests/s over 99.40 s; 500 tokens out, 1000 in",
        "",
        "load test of base at http://h/v1: 100 requests of sample.jsonl",
        "at 1/s; openai completions, prompts as token ids, output length forced",
        "prompts 10 tokens on average (p99 10), outputs 5 tokens on average (p99 5)",
        "load delivered: offered 1/s, sent 0.998/s, lag p99 1.25 ms, loop late p99 2 ms, CPU 41%: "
        "client ok",
        "",
        "steady part: from 0.0 s, when the server has filled, to the last arrival at 99.0 s; "
        "100 requests",
        head,
        *latencies,
        *speeds,
        "output throughput 5 tokens/s",
        "",
        "100 requests: 100 finished",
        "SLO TTFT \u2264 500 ms met by 100.0% of all scheduled requests, goodput 1.006 requests/s",
        "note: rate scaled",
        "files: runs/one",
        "",
    ]
    assert max(map(len, lines)) <= 100


def test_a_p99_of_few_values_is_marked() -> None:
    lines = render_report(run_of(99)).splitlines()
    assert [line.count("*") for line in lines[1:9]] == [1, 1, 1, 1, 0, 1, 1, 1]
    assert lines[8] == "* fewer than 100 values: not a firm p99"


def test_a_run_that_never_settles_is_said_to_be_so() -> None:
    run = run_of(100)
    run.requests["last_token_s"] = 1e3
    lines = render_report(run).splitlines()
    assert "steady part: none; never settles: the number in the system grows to the end" in lines
    assert sum(line.startswith("TTFT ms") for line in lines) == 1


def test_failures_by_class_with_their_first_message() -> None:
    statuses = ["finished", "failed", "failed", "refused"]
    run = run_of(
        4,
        statuses,
        failures={"http_5xx": 2, "http_429": 1},
        first_messages={"http_5xx": "HTTP 500: boom " + "x" * 200, "http_429": "HTTP 429: full"},
    )
    lines = render_report(run, SLO(e2e_s=2.0)).splitlines()
    start = lines.index("4 requests: 1 finished, 1 refused, 2 failed")
    assert lines[start + 1].startswith("  2 x http_5xx: HTTP 500: boom xxx")
    assert lines[start + 2] == "  1 x http_429: HTTP 429: full"
    assert (
        "SLO E2E latency \u2264 2000 ms met by 25.0% of all scheduled requests" in lines[start + 3]
    )
    assert max(map(len, lines)) <= 100


def test_long_notes_are_folded() -> None:
    run = run_of(1)
    run.scenario["notes"] = ["word " * 40]
    lines = render_report(run).splitlines()
    assert sum(line.count("word") for line in lines) == 40
    assert max(map(len, lines)) <= 100


def test_a_run_in_which_nothing_finished_has_a_report() -> None:
    run = run_of(1, ["failed"], offered_per_s=None, sent_per_s=None, failures={"connect": 1})
    lines = render_report(run).splitlines()
    assert any(line.startswith("load delivered: offered -/s, sent -/s") for line in lines)
    assert lines[1].split() == ["TTFT", "ms", *"------"]
    assert "1 requests: 0 finished, 1 failed" in lines


def test_the_figures_of_a_limited_client_are_marked() -> None:
    reasons = ["schedule lag p99 31 ms, over 20 ms", "CPU 97%"]
    lines = render_report(run_of(100, verdict="client limited", limited_by=reasons)).splitlines()
    assert " ".join(" ".join(lines[:2]).split()) == (
        "CLIENT LIMITED: the latencies below include the client's own "
        "(schedule lag p99 31 ms, over 20 ms; CPU 97%)"
    )
    assert max(map(len, lines)) <= 100


def test_what_the_client_did_besides_is_said() -> None:
    lines = render_report(run_of(3, processes=4, lost_processes=1, resent=2)).splitlines()
    assert "4 processes, CPU 41%: client ok" in " ".join(" ".join(lines).split())
    assert "1 of 4 processes of the load test died" in lines
    assert "2 requests were sent twice: the server was closing their connection" in lines


HINTS: list[tuple[dict[str, str], str | None]] = [
    ({"no_token": "no event with text; the body begins '<!doctype html>'"}, "web page"),
    ({"no_token": "no event with text; the body begins 'data: {}'"}, "--dialect"),
    ({"http_4xx": "HTTP 400: Unrecognized request argument: ignore_eos"}, "--no-force-length"),
    ({"http_4xx": "HTTP 401: no"}, "--api-key-env"),
    ({"http_4xx": "HTTP 404: Not Found"}, "--api"),
    ({"http_4xx": "HTTP 400: maximum context length is 4096"}, "--on-too-long clip"),
    ({"http_3xx": "HTTP 302: "}, "redirects"),
    ({"timeout": "no complete answer within 600 s"}, "--timeout"),
    ({"connect": "refused"}, "still running"),
    ({"http_5xx": "HTTP 500: boom"}, None),
    ({"http_4xx": "HTTP 400: prompt is empty"}, None),
    ({}, None),
]


@pytest.mark.parametrize(("messages", "advice"), HINTS)
def test_hints(messages: dict[str, str], advice: str | None) -> None:
    found = hint(messages)
    assert found is None if advice is None else advice in str(found)


TABLE: dict[str, tuple[dict[str, Any], list[str]]] = {
    "all is well": ({"limited_by": [], "resent": 0, "not_sent": 0, "in_flight": 0}, []),
    "a client that is late": (
        {"limited_by": ["lag p99 9.0 ms", "CPU 99%"]},
        ["CLIENT LIMITED: the latencies below include the client's own (lag p99 9.0 ms; CPU 99%)"],
    ),
    "a lost process": (
        {"lost_processes": 1, "processes": 3},
        ["1 of 3 processes of the load test died"],
    ),
    "closed connections": (
        {"resent": 2},
        ["2 requests were sent twice: the server was closing their connection"],
    ),
    "an early end": (
        {"not_sent": 3, "in_flight": 1},
        [
            "ENDED EARLY: 3 requests were not sent, 1 were in flight; they are in none of the "
            "figures below"
        ],
    ),
    "an interrupted one": (
        {"interrupted": True, "stopped": None, "not_sent": 3, "in_flight": 1},
        ["CUT OFF: interrupted; 3 requests were not sent, 1 were in flight"],
    ),
    "one that was killed": (
        {"interrupted": True, "stopped": "killed after 56 of 400 requests had ended"},
        ["CUT OFF: killed after 56 of 400 requests had ended"],
    ),
    "doubts about tokens": ({"token_doubts": ["A", "B"]}, ["A", "B"]),
}


@pytest.mark.parametrize("name", TABLE)
def test_warnings(name: str) -> None:
    delivered, lines = TABLE[name]
    assert list(load_warnings(delivered)) == lines


def run(failed: int = 0) -> Run:
    """100 requests: TTFT 200 ms, TPOT and gaps 50 ms, E2E 400 ms, 5 tokens each."""
    found = run_of(100, ["failed"] * failed + ["finished"] * (100 - failed))
    found.requests["error"] = None
    return found


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
    *_, wrong, right = judge_conditions(conditions, run(failed=2), SLO(e2e_s=1.0))
    assert wrong.value == right.value == pytest.approx(value, rel=1e-3)
    assert (wrong.failed, right.failed) == (True, False)
    assert (wrong.condition, right.condition) == (fails, holds)


def test_one_line_says_what_failed_and_by_how_much() -> None:
    conditions = parse_conditions(["ttft_p99>150ms", "finished<99%", "e2e>1s"], slo=False)
    findings = judge_conditions(conditions, run(failed=3))
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
    findings = judge_conditions([DEFAULT], run(failed=failed))
    assert (failed_line(findings) is not None) == fails


def test_a_figure_that_no_request_has_fails() -> None:
    conditions = parse_conditions(["tpot_p99>50ms", "failed>100%"], slo=False)
    findings = judge_conditions(conditions, run(failed=100))
    assert [finding.failed for finding in findings] == [True, False]
    assert failed_line(findings) == "tpot_p99: no request has it"


def test_requests_on_which_a_client_hung_up_did_not_fail() -> None:
    hung_up = run(failed=50)
    hung_up.requests.loc[:49, "error"] = "cancelled_by_test"
    (finding,) = judge_conditions([DEFAULT], hung_up)
    assert finding.value == 0


def test_warm_up_is_in_no_condition() -> None:
    warm = run(failed=20)
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
    (finding,) = judge_conditions([condition], run(), SLO(ttft_s=1.0))
    assert finding.value is not None


def test_lost_processes_come_before_the_conditions() -> None:
    findings = judge_conditions([DEFAULT], run(failed=50))
    lost = run(failed=50)
    lost.extra["delivered"] |= {"interrupted": False, "stopped": None}
    judged = LoadTestReport(lost, Path("here"), None, findings)
    assert judged.verdict == LoadVerdict("FAIL", str(failed_line(findings)))
    lost.extra["delivered"] |= {"lost_processes": 1, "processes": 2}
    plain = LoadTestReport(lost, Path("here"))
    assert str(plain.verdict) == "CUT OFF: 1 of 2 processes of the load test died"


JUDGED: dict[str, tuple[str | None, list[str], dict[str, Any], str, int]] = {
    "no limit": (None, [], {}, "PASS: 100 of 100 requests finished", 0),
    "held": (
        "ttft=1s,ttft_p99=300ms", [], {},
        "PASS: 100 of 100 requests finished; requests within the SLO 100 % (limit 99 %); "
        "ttft_p99 200 ms (limit 300 ms)", 0,
    ),
    "missed": (
        "ttft=100ms", [], {},
        "FAIL: requests within the SLO 0 % (limit 99 %)", 1,
    ),
    "a percentile": (
        "tpot.p95=40ms", [], {}, "FAIL: tpot_p95 50 ms (limit 40 ms)", 1,
    ),
    "a share of its own": (
        "ttft=100ms", ["slo_attainment<0%"], {},
        "PASS: 100 of 100 requests finished; requests within the SLO 0 % (limit 0 %)", 0,
    ),
    "a late client": (
        "ttft=100ms", [], {"limited_by": ["CPU 97%"]},
        "CANNOT TELL: requests within the SLO 0 % (limit 99 %); the client was late (CPU 97%)", 3,
    ),
    "a late client that does not matter": (
        None, ["finished<100%", "failed>0%"], {"limited_by": ["CPU 97%"]},
        "PASS: 100 of 100 requests finished; finished 100 % (limit 100 %); failed 0 % (limit 0 %)",
        0,
    ),
    "interrupted": (
        "ttft=100ms", [], {"interrupted": True},
        "CUT OFF: interrupted: 100 of 100 requests kept in here", 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", JUDGED)
def test_the_verdict_is_the_first_line_of_the_text_and_of_the_json(name: str) -> None:
    slo, fail_if, delivered, line, code = JUDGED[name]
    judged = run()
    judged.extra["delivered"] |= {"interrupted": False, "stopped": None, **delivered}
    limits, conditions = parse_thresholds(slo, fail_if)
    findings = judge_conditions(conditions, judged, limits)
    report = LoadTestReport(judged, Path("here"), limits, findings)
    assert str(report.verdict) == line
    assert report.verdict.exit_code == code
    text, _, _ = report.as_text().partition("\n\n")
    assert " ".join(text.split()) == line
    word, _, reason = line.partition(": ")
    assert list(report.as_dict().items())[:2] == [("verdict", word), ("reason", reason)]


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


EXAMPLE = "write for example ttft=500ms,tpot=50ms,e2e=2s,task=120s"


@pytest.mark.parametrize(
    ("text", "slo"),
    [
        ("ttft=500ms", SLO(ttft_s=0.5)),
        ("ttft=500ms,tpot=50ms,e2e=2s", SLO(0.5, 0.05, 2.0)),
        (" e2e = 1.5 s , tpot=250us", SLO(tpot_s=0.00025, e2e_s=1.5)),
    ],
)
def test_limits_as_people_write_them(text: str, slo: SLO) -> None:
    found = parse_slo(text)
    for name in ("ttft_s", "tpot_s", "e2e_s"):
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
