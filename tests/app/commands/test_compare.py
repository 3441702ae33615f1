"""``servetwin compare``: the verdict, its exit code, its table and its picture."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner, Result

pytest.importorskip("plotly", reason="pictures need plotly")
from servetwin.app.cli import app
from servetwin.sim.records.run import Run, RunError, load_run
from servetwin.workloads.errors import LoadTestError
from tests.support.command import SERVER, refused, servetwin
from tests.support.gate_runs import noisy_run

ALLOW = ["--allow", "tpot=5%,ttft=10%"]


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["compare", *map(str, arguments)])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    noisy_run().save(folder / "before")
    noisy_run(seed=1).save(folder / "same")
    noisy_run(1.12, seed=2).save(folder / "slower")
    noisy_run(0.8, seed=3).save(folder / "faster")
    noisy_run(1.3, seed=4).save(folder / "drifted")
    noisy_run(seed=5, count=20).save(folder / "few")
    noisy_run(seed=8).save(folder / "other" / "same")
    for place in (1, 2):
        noisy_run(seed=5 + place).save(folder / "twice" / str(place))
    return folder


@pytest.mark.parametrize(
    ("run", "code", "said"),
    [
        ("same", 0, "The gate holds: 1 run against 1 baseline, no judged metric is worse"),
        ("slower", 1, "The gate is REFUTED: 1 run against 1 baseline, worse than allowed: TPOT"),
        ("faster", 0, "Better than the baseline: output throughput, TPOT mean, "),
        ("twice", 0, "The gate holds: 2 runs against 1 baseline"),
    ],
)
def test_the_exit_code_is_the_outcome(runs: Path, run: str, code: int, said: str) -> None:
    result = invoke(runs / "before", runs / run, "--gate", *ALLOW)
    assert result.exit_code == code, result.output
    assert said in result.output
    assert max(map(len, result.output.splitlines())) <= 100
    without = invoke(runs / "before", runs / run, *ALLOW)
    assert without.exit_code == 0
    assert without.output == result.output


def test_a_baseline_that_drifts_cannot_tell(runs: Path) -> None:
    arguments = [runs / "before", runs / "slower", "--gate", *ALLOW]
    result = invoke(*arguments, "--baseline", runs / "drifted")
    assert result.exit_code == 3
    assert "Cannot tell: the machine drifted: the baselines are" in result.output
    assert "one baseline" not in result.output
    assert invoke(*arguments, "--baseline", runs / "same").exit_code == 1


def test_one_baseline_is_said_to_see_no_drift(runs: Path) -> None:
    said = " ".join(invoke(runs / "before", runs / "same", *ALLOW).output.split())
    assert "Note: one baseline: what the machine did between the runs is not seen;" in said


def test_the_table_reads_as_it_is_meant(runs: Path) -> None:
    lines = invoke(runs / "before", runs / "slower", *ALLOW).output.splitlines()
    assert lines[0].split() == [
        "unit", "baseline", "run", "change", "from", "to", "allowed", "sees",
    ]  # fmt: skip
    (row,) = (line.split() for line in lines if line.startswith("TPOT mean"))
    assert row[:3] == ["TPOT", "mean", "ms"]
    assert [row[-3], row[-1]] == ["+5.0%", "REFUTED"]
    change, low, high, sees = (float(row[place].rstrip("%")) for place in (5, 6, 7, 9))
    assert low < change < high
    assert 11 < change < 13
    assert 5 < sees < 6
    (throughput,) = (line.split() for line in lines if line.startswith("output throughput"))
    assert throughput[-2:] == ["-", "-"], "nothing is allowed, so nothing judged"


def test_json_has_the_outcome_and_the_limits(runs: Path) -> None:
    result = invoke(runs / "before", runs / "slower", "--gate", "--json", *ALLOW)
    assert result.exit_code == 1
    found = json.loads(result.output)
    assert (found["outcome"], found["holds"]) == ("refuted", False)
    limits = {row["metric"]: row["limit"] for row in found["metrics"] if row["outcome"]}
    assert limits == {"tpot_s.mean": 0.05, "ttft_s.mean": 0.10}


def test_few_requests_cannot_tell(runs: Path) -> None:
    result = invoke(runs / "few", runs / "few", "--gate", *ALLOW)
    assert result.exit_code == 3
    assert "Cannot tell: 20 counted requests are too few; send at least 30" in result.output


@pytest.mark.parametrize(
    ("other", "error", "message"),
    [
        ("nowhere", RunError, "nowhere: neither a run folder nor a folder of runs; give"),
        ("incomplete", RunError, "incomplete: not a readable run folder"),
        ("few", LoadTestError, "few: not the requests of {runs}/before, by their ids and arrivals"),
        ("rate", LoadTestError, "rate: rate 20, but 10 in {runs}/before; give the same load and"),
    ],
)
def test_what_cannot_be_compared_is_one_line(
    runs: Path, other: str, error: type[Exception], message: str
) -> None:
    noisy_run(per_s=20.0).save(runs / "rate")
    (noisy_run().save(runs / "incomplete") / "summary.json").unlink(missing_ok=True)
    result = invoke(runs / "before", runs / other, "--gate")
    assert isinstance(result.exception, error)
    assert message.format(runs=runs) in str(result.exception)
    assert "\n" not in str(result.exception)


def test_replays_are_compared_too(tmp_path: Path) -> None:
    noisy_run(kind="simulation", noise=0.0).save(tmp_path / "a")
    noisy_run(1.2, kind="simulation", noise=0.0).save(tmp_path / "b")
    result = invoke(tmp_path / "a", tmp_path / "b", "--gate")
    assert result.exit_code == 1
    assert "one baseline" not in result.output, "a simulation does not drift"
    assert invoke(tmp_path / "b", tmp_path / "a", "--gate").exit_code == 0


def recorded(slower: float = 1.0) -> Run:
    """A run that another load tester recorded, with ids of its own; one more request failed."""
    run = noisy_run(slower, failed=1, count=201)
    rows = run.requests.assign(request_id=[f"bench-{n}" for n in range(201)])
    stamps = ["scheduled_s", "sent_s", "first_token_s", "last_token_s"]
    rows[stamps] -= 0.1
    return replace(run, requests=rows, scenario={"recorded_by": "a bench", "notes": []})


@pytest.mark.parametrize(
    ("run", "code"), [(recorded(), 0), (recorded(1.2), 1), (noisy_run(1.2), 1)]
)
def test_a_simulation_is_compared_with_a_measured_run(tmp_path: Path, run: Run, code: int) -> None:
    """By ids, or by order: what failed there was not simulated."""
    noisy_run(kind="simulation", noise=0.0).save(tmp_path / "replay")
    run.save(tmp_path / "bench")
    limits = ("--allow", "tpot=5%,ttft=5%")
    result = invoke(tmp_path / "replay", tmp_path / "bench", "--gate", *limits)
    assert result.exit_code == code, result.output
    (row,) = (line.split() for line in result.output.splitlines() if line.startswith("TPOT mean"))
    assert float(row[5].rstrip("%")) == pytest.approx(20 * code, abs=1)
    swapped = invoke(tmp_path / "bench", tmp_path / "replay", "--gate", *limits)
    assert swapped.exit_code == 0, swapped.output


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[:150], "bench: 149 requests, but 200 in .*/replay; replay the trace of"),
        (
            lambda rows: rows.assign(prompt_tokens=9),
            "'bench-1' has another prompt length than",
        ),
        (
            lambda rows: rows.assign(scheduled_s=2 * rows["scheduled_s"]),
            "'bench-2' has another a",
        ),
    ],
)
def test_a_measured_run_of_another_trace_is_one_line(
    tmp_path: Path, change: Callable[[pd.DataFrame], pd.DataFrame], message: str
) -> None:
    noisy_run(kind="simulation").save(tmp_path / "replay")
    run = recorded()
    replace(run, requests=change(run.requests)).save(tmp_path / "bench")
    result = invoke(tmp_path / "replay", tmp_path / "bench")
    assert isinstance(result.exception, LoadTestError)
    assert re.search(message, str(result.exception))


def test_a_replay_keeps_the_intervals_of_its_replications(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    generated = ["workload", "generate", "--out", str(trace), "--requests", "40", "--rate", "2"]
    assert CliRunner().invoke(app, generated).exit_code == 0
    for out in ("a", "b"):
        given = ["replay", str(trace), *SERVER, "--replications", "3", "--out", str(tmp_path / out)]
        assert CliRunner().invoke(app, given).exit_code == 0
    kept = load_run(tmp_path / "a").extra["intervals"]["tpot_s.mean"]
    assert kept["p5"] < kept["median"] < kept["p95"]
    found = json.loads(invoke(tmp_path / "a", tmp_path / "b", "--json").output)
    row = next(row for row in found["metrics"] if row["metric"] == "tpot_s.mean")
    assert row["baseline"] == kept["median"]
    assert row["low"] < row["change"] == 0 < row["high"]


def test_runs_and_their_baseline_are_lines_of_one_chart(runs: Path, tmp_path: Path) -> None:
    path = tmp_path / "c.html"
    done = servetwin("compare", runs / "before", runs / "same", "--plot", path)
    assert done.code == 0, done.err
    page = path.read_text()
    assert '"name":"before"' in page
    assert '"name":"same"' in page
    assert "Measured: " in page
    assert done.out.splitlines()[-1].startswith(f"picture: {path}")


def test_runs_of_the_same_name_keep_their_places(runs: Path, tmp_path: Path) -> None:
    path = tmp_path / "c.html"
    three = ("compare", runs / "before", runs / "same", runs / "other" / "same")
    done = servetwin(*three, "--plot", path, "--chart", "tpot", "--json")
    assert json.loads(done.out)["outcome"]
    page = path.read_text()
    assert "other" in page
    assert "Distribution of TPOT" in page


def test_a_gate_that_refuses_has_its_picture_too(runs: Path, tmp_path: Path) -> None:
    path = tmp_path / "c.html"
    done = servetwin("compare", runs / "before", runs / "slower", "--gate", "--plot", path)
    assert done.code == 1
    assert path.exists()


def test_what_cannot_be_drawn_is_refused_first(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "c.html").write_text("<!DOCTYPE html>")
    two = ("compare", runs / "before", runs / "same")
    assert "--overwrite replaces it" in refused(*two, "--plot", tmp_path / "c.html")
    assert "shows one run" in refused(*two, "--plot", tmp_path / "d.html", "--chart", "requests")


def test_a_chart_that_the_runs_cannot_fill_is_said_after_the_verdict(
    runs: Path, tmp_path: Path
) -> None:
    two = ("compare", runs / "before", runs / "same")
    done = servetwin(*two, "--plot", tmp_path / "d.html", "--chart", "server")
    assert done.code == 2
    assert "do not know what their server did" in done.err
    assert "The gate" in done.out
