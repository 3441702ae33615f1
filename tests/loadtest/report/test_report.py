from pathlib import Path

from servetwin.loadtest.report.report import render_report
from servetwin.sim.records.metrics import SLO
from tests.support.known_run import run_of


def test_the_whole_report() -> None:
    lines = render_report(run_of(100), SLO(ttft_s=0.5), Path("runs/one")).splitlines()
    assert lines[:25] == [
        "load test of base at http://h/v1",
        "100 requests of sample.jsonl at 1/s; openai completions, prompts as token ids, "
        "output length forced",
        "load delivered: offered 1/s, sent 0.998/s, lag p99 1.25 ms, loop late p99 2 ms, CPU 41%: "
        "client ok",
        "",
        "                        count       mean        p50        p90        p95        p99"
        "        max",
        *(
            f"{name:22}{count:7}" + " ".join(f"{value:>10}" for value in [figure] * 6)
            for name, count, figure in [
                ("TTFT, ms", 100, "200.00"),
                ("TTFT from sent, ms", 100, "100.00"),
                ("TPOT, ms", 100, "50.00"),
                ("chunk gap (ITL), ms", 400, "50.00"),
                ("E2E latency, ms", 100, "400.00"),
                ("decode TPS, tokens/s", 100, "20.00"),
                ("request TPS, tokens/s", 100, "12.50"),
            ]
        ),
        "output throughput 5.03 tokens/s, 1.006 requests/s over 99.40 s; 500 tokens out, 1000 in",
        "",
        "steady part: from 0.0 s, when the server has filled, to the last arrival at 99.0 s; "
        "100 requests",
        *(line for line in lines[5:10] if line.split(",")[0] in ("TTFT", "TPOT", "E2E latency")),
        "output throughput 5 tokens/s, 1 requests/s",
        "",
        "100 requests: 100 finished",
        "SLO ttft <= 500 ms: met by 100.0% of all scheduled requests, goodput 1.006/s",
        "note: rate scaled",
        "files: runs/one",
        "",
    ]
    assert max(map(len, lines)) <= 100


def test_a_p99_of_few_values_is_marked() -> None:
    lines = render_report(run_of(99)).splitlines()
    assert [line.count("*") for line in lines[5:13]] == [1, 1, 1, 0, 1, 1, 1, 1]
    assert lines[12] == "* fewer than 100 values: not a firm p99"


def test_a_run_that_never_settles_is_said_to_be_so() -> None:
    run = run_of(100)
    run.requests["last_token_s"] = 1e3
    lines = render_report(run).splitlines()
    assert "steady part: none; never settles: the number in the system grows to the end" in lines
    assert sum(line.startswith("TTFT, ms") for line in lines) == 1


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
    assert "SLO e2e <= 2000 ms: met by 25.0% of all scheduled requests" in lines[start + 3]
    assert max(map(len, lines)) <= 100


def test_long_notes_are_folded() -> None:
    run = run_of(1)
    run.scenario["notes"] = ["word " * 40]
    lines = render_report(run).splitlines()
    assert sum(line.count("word") for line in lines) == 40
    assert max(map(len, lines)) <= 100


def test_short_answers_are_counted() -> None:
    run = run_of(3)
    run.requests.loc[1, "asked_output_tokens"] = 6
    assert "  1 finished with fewer tokens than in the trace" in render_report(run).splitlines()


def test_a_run_in_which_nothing_finished_has_a_report() -> None:
    run = run_of(1, ["failed"], offered_per_s=None, sent_per_s=None, failures={"connect": 1})
    lines = render_report(run).splitlines()
    assert "load delivered: offered -/s, sent -/s" in lines[2]
    assert lines[5].split() == ["TTFT,", "ms", "0", *"------"]
    assert "1 requests: 1 failed" in lines


def test_the_figures_of_a_limited_client_are_marked() -> None:
    reasons = ["schedule lag p99 31 ms, over 20 ms", "CPU 97%"]
    lines = render_report(run_of(100, verdict="client limited", limited_by=reasons)).splitlines()
    assert " ".join(" ".join(lines[2:6]).split()).endswith(
        "CPU 41%: client limited CLIENT LIMITED: the latencies below include the client's own "
        "(schedule lag p99 31 ms, over 20 ms; CPU 97%)"
    )
    assert lines[7].startswith("(client limited)        count")
    assert max(map(len, lines)) <= 100


def test_what_the_client_did_besides_is_said() -> None:
    lines = render_report(run_of(3, processes=4, lost_processes=1, resent=2)).splitlines()
    assert "4 processes, CPU 41%: client ok" in " ".join(" ".join(lines[2:4]).split())
    assert "1 of 4 processes of the load test died" in lines
    assert "2 requests were sent twice: the server was closing their connection" in lines
