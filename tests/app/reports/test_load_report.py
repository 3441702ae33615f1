"""The report of a load test, and the verdict that leads it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from servetwin.app.reports.load_test import LoadTestReport, LoadVerdict, render_report
from servetwin.loadtest.report.limits import (
    DEFAULT,
    failed_line,
    judge_conditions,
    parse_thresholds,
)
from servetwin.sim.records.metrics import SLO
from tests.support.known_run import hundred, run_of


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


def test_lost_processes_come_before_the_conditions() -> None:
    findings = judge_conditions([DEFAULT], hundred(failed=50))
    lost = hundred(failed=50)
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
        "CUT OFF: interrupted; 100 of 100 requests kept in here", 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", JUDGED)
def test_the_verdict_is_the_first_line_of_the_text_and_of_the_json(name: str) -> None:
    slo, fail_if, delivered, line, code = JUDGED[name]
    judged = hundred()
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
    ("outcome", "code", "line"),
    [
        ("refuted", 1, "FAIL: the prediction is refuted"),
        ("cannot tell", 3, "CANNOT TELL: this load test cannot tell whether the prediction holds"),
        ("holds", 0, "PASS: 100 of 100 requests finished"),
    ],
)
def test_the_verdict_on_a_prediction(outcome: str, code: int, line: str) -> None:
    judged = hundred()
    judged.extra["delivered"] |= {"interrupted": False, "stopped": None}
    prediction: Any = (SimpleNamespace(outcome=outcome), None)
    verdict = LoadTestReport(judged, Path("here"), prediction=prediction).verdict
    assert (str(verdict), verdict.exit_code) == (line, code)
