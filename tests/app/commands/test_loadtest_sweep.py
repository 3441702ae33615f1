"""Sweeps over load levels on the command line, against a mock and against a server that dies."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from servetwin.app.cli import app
from servetwin.app.scenario.options.load import (
    CLIMB_S,
    GENERATED_REQUESTS,
    LevelSweepOptions,
    LoadChoice,
)
from servetwin.app.tasks.load_sweep import LEAST_PREDICTED, SYNCHRONOUS_REQUESTS, LevelLoad
from servetwin.loadtest.sweep.attainment import least_requests
from servetwin.loadtest.sweep.level import LevelPlan
from servetwin.loadtest.sweep.sweep import load_sweep
from servetwin.sim.records.run import load_run
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.readers.native import write_trace
from tests.support.mock_endpoint import mocked, plan
from tests.support.mock_load import trace_of
from tests.support.paths import ROOT

LOAD = ["--prompt-tokens", "8", "--output-tokens", "2", "--sweep-requests", "20"]
SLO = ["--slo", "ttft=900ms"]


PATIENT = """
import servetwin.loadtest.sweep.level as level
level.client_limits = lambda *_, **__: []
from servetwin.app.cli import main; main()
"""
"""The command line, for which a busy machine is no reason to repeat a level."""


@pytest.fixture(autouse=True)
def every_level_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeated levels are the subject of ``tests/loadtest/sweep/test_sweep.py``."""
    monkeypatch.setattr("servetwin.loadtest.sweep.level.client_limits", lambda *_, **__: [])


def invoke(url: str, *options: str) -> Result:
    return CliRunner().invoke(app, ["loadtest", url, *LOAD, *options])


def swept(out: Path, *options: str, ttft_ms: float = 40.0) -> Result:
    with mocked(plan(ttft_ms=ttft_ms, itl_ms=5)) as (server,):
        return invoke(server.url, "--out", str(out), *options)


def prompts(folder: Path) -> str:
    return str(load_run(folder).meta["prompt_salt"])


@pytest.mark.slow
def test_rates_between_the_ends_are_in_one_folder_with_prompts_of_their_own(tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    result = swept(out, "--sweep", "rates", "--sweep-levels", "2", *SLO, "--prompt-salt", "mine")
    assert result.exit_code == 0, result.output
    sweep = load_sweep(out)
    kinds = [level.plan.kind for level in sweep.levels]
    assert kinds == ["synchronous", "throughput", "rate", "rate"]
    folders = [out / level.plan.folder for level in sweep.levels]
    assert [len(load_run(folder).requests) for folder in folders] == [20] * 4
    assert [prompts(folder) for folder in folders] == [
        f"mine/sweep/level/{number}/1" for number in (1, 2, 3, 4)
    ]
    alone, at_once = (load_run(folder).requests["sent_s"] for folder in folders[:2])
    assert at_once.max() < alone.max() / 4
    first, second = (load_run(folder).requests["scheduled_s"].tolist() for folder in folders[2:])
    assert first != second
    assert "all levels are measured" in result.output


@pytest.mark.slow
def test_a_search_ends_at_saturation_where_all_is_held_and_its_folder_is_reported(
    tmp_path: Path,
) -> None:
    pytest.importorskip("plotly")
    out, page = tmp_path / "sweep", tmp_path / "report.html"
    result = swept(
        out, "--sweep", "slo", *SLO, "--attainment", "0.5", "--json",
        "--profile", "base-cpu",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["ended"] == "every bracket is narrow"
    assert found["knee"]["rate_per_s"] is None
    assert found["predicted_knee"]["rate_per_s"] > 0
    assert all(level["predicted"]["slo_attainment"] is not None for level in found["levels"])
    assert found["verdict"] == "PASS"
    kept = (out / "report.html").read_text()
    assert "<h1>PASS: load test of" in kept
    assert "Share of requests within the SLO" in kept
    shown = CliRunner().invoke(app, ["report", str(out), "--out", str(page)])
    assert shown.exit_code == 0, shown.output
    assert "knee: not between the rates" in shown.output


@pytest.mark.slow
def test_the_url_alone_climbs_to_the_knee_and_keeps_its_report(tmp_path: Path) -> None:
    """A mock answers any load alike, so that every rate holds what requests alone set."""
    result = swept(tmp_path / "sweep", "--sweep-budget", "5", "--json", ttft_ms=30.0)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [*found][:2] == ["verdict", "reason"]
    assert (found["sweep"]["of"], found["sweep"]["level_s"]) == ("slo", CLIMB_S)
    assert result.stderr.startswith("load test after load test, for about 5 load tests")
    assert found["sweep"]["precision"] == 0.05
    alone_s = found["levels"][0]["figures"]["ttft_s.p99"]
    assert found["limits"]["ttft_s"] == pytest.approx(6 * alone_s, rel=5e-3)  # three digits
    assert found["reason"].startswith("up to ")
    assert "levels of 20 requests: prompts 8 tokens on average" in result.stderr
    assert "model mock" in result.stderr
    kept = json.loads((tmp_path / "sweep" / "report.json").read_text())
    assert kept == found
    rows = (tmp_path / "sweep" / "report.csv").read_text().splitlines()
    assert len(rows) == 1 + len(found["levels"])


def test_a_rate_alone_means_poisson_arrivals_and_no_load_a_climb() -> None:
    assert LoadChoice(rate_per_s=5.0, duration_s=20.0).record()["arrivals"] == "poisson"
    assert LoadChoice(path=Path("t"), rate_per_s=5.0).arrivals is None
    climb = LoadChoice(prompt_tokens="64").sweep
    assert (climb.of, climb.precision, climb.budget) == ("climb", 0.05, "150s")
    for some in ({"duration_s": 5.0}, {"limit": 9}):
        with pytest.raises(LoadTestError, match="nothing to send: give --rate"):
            LoadChoice(**some)


@pytest.mark.slow
def test_users_are_swept_up_to_the_answers_at_once(tmp_path: Path) -> None:
    result = swept(tmp_path / "sweep", "--sweep", "users", "--sweep-levels", "2")
    assert result.exit_code == 0, result.output
    levels = load_sweep(tmp_path / "sweep").levels
    users = [level.plan.users for level in levels]
    assert users[:2] == [1, None]
    assert all(more > 1 for more in users[2:] if more)
    assert "within SLO" not in result.output


def test_a_budget_ends_the_sweep_and_says_so(tmp_path: Path) -> None:
    result = swept(tmp_path / "sweep", "--sweep", "slo", *SLO, "--sweep-budget", "2")
    assert result.exit_code == 3, result.output
    assert result.stdout.startswith("CANNOT TELL: the budget of 2 load tests is spent")
    assert "ended: the budget of 2 load tests is spent" in result.output
    assert len(load_sweep(tmp_path / "sweep").levels) == 2


def test_a_trace_keeps_its_requests_at_every_level(tmp_path: Path) -> None:
    out, trace = tmp_path / "sweep", tmp_path / "trace.jsonl"
    rows = [
        {"request_id": f"r{n}", "arrival_s": 0.1 * n, "prompt_tokens": 9, "output_tokens": 2}
        for n in range(20)
    ]
    trace.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with mocked(plan(ttft_ms=30, itl_ms=5)) as (server,):
        asked = ["--trace", str(trace), "--sweep", "rates", "--sweep-levels", "1"]
        result = CliRunner().invoke(app, ["loadtest", server.url, *asked, "--out", str(out)])
    assert result.exit_code == 0, result.output
    levels = load_sweep(out).levels
    assert [level.requests for level in levels] == [20] * 3
    runs = [load_run(out / level.plan.folder) for level in levels]
    asked_ids = {row["request_id"] for row in rows}
    assert all(set(run.requests["request_id"]) == asked_ids for run in runs)
    gaps_s = runs[2].requests["scheduled_s"].diff().dropna()
    assert gaps_s.max() - gaps_s.min() < 1e-6
    assert 1 / gaps_s.mean() == pytest.approx(levels[2].plan.rate_per_s)


@pytest.mark.slow
def test_another_sweep_replaces_one_only_where_it_is_asked_to(tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    assert swept(out, "--sweep", "users", "--sweep-levels", "1").exit_code == 0
    (out / "notes.txt").write_text("mine")
    refused = swept(out, "--sweep", "users", "--sweep-budget", "1")
    assert "--overwrite replaces it" in str(refused.exception)
    assert len(load_sweep(out).levels) == 3
    replaced = swept(out, "--sweep", "users", "--sweep-budget", "1", "--overwrite")
    assert replaced.exit_code == 0, replaced.output
    assert sorted(path.name for path in out.iterdir() if not path.name.startswith(".")) == [
        "01-synchronous", "notes.txt", "report.csv", "report.html", "report.json", "sweep.json",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--sweep", "slo", "--slo", "ttft_p9=1s,e2e_p99=1s"], "one share of the requests"),
        (["--sweep", "rates", "--against", "run"], "--against: is for one load test"),
        (["--sweep", "rates", "--baseline", "run"], "--baseline: is for one load test"),
        (["--sweep", "rates", "--live", "file"], "--live: is for one load test"),
        (["--sweep", "rates", "--fail-if", "failed>1%"], "--fail-if: is for one load test"),
        (["--sweep", "rates", "--limit", "9"], "--sweep-requests N is of each level"),
        (["--sweep", "rates", "--duration", "9"], "--duration and --sweep exclude"),
        (["--sweep", "rates", "--rate", "9"], "--rate and --sweep exclude"),
        (["--sweep", "slo", "--concurrency", "9"], "--concurrency and --sweep exclude"),
        (["--sweep", "users", "--arrivals", "poisson"], "--arrivals and --sweep users exclude"),
        (["--sweep", "rates", "--arrivals", "ramp:from=1,to=2"], "a level has one rate"),
        (["--sweep", "slo", *SLO, "--sweep-levels", "3"], "chooses its rates"),
        (["--sweep", "rates", "--sweep-precision", "0.1"], "--sweep-precision: only --sweep slo"),
        (["--sweep", "rates", "--attainment", "0.9"], "--attainment: give --slo as well"),
        (
            ["--sweep", "slo", *SLO, "--attainment", "nan"],
            "nan is impossible; give a finite number",
        ),
        (["--sweep", "slo", *SLO, "--sweep-budget", "soon"], "no number and no time"),
        (["--concurrency", "2", "--limit", "9"], "--sweep-requests needs a sweep: give --sweep"),
    ],
)
def test_what_contradicts_a_sweep_is_one_line(options: list[str], complaint: str) -> None:
    result = invoke("http://127.0.0.1:9", *options)
    assert complaint in str(result.exception)
    assert "\n" not in str(result.exception)


@pytest.mark.parametrize("option", [["--profile", "base-cpu"], ["--set", "max_seqs=1"]])
def test_a_prediction_is_of_a_sweep(option: list[str]) -> None:
    asked = ["loadtest", "http://127.0.0.1:9", "--concurrency", "2", "--limit", "9", *option]
    result = CliRunner().invoke(app, asked)
    assert f"{option[0]}: predicts the levels of --sweep" in str(result.exception)


@pytest.mark.slow
def test_ctrl_c_keeps_the_finished_levels_and_says_so(tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    with mocked(plan(ttft_ms=100, itl_ms=5)) as (server,):
        command = [sys.executable, "-c", PATIENT, "loadtest", server.url]
        asked = [*LOAD, "--sweep", "users", "--sweep-levels", "50", "--out", str(out)]
        process = subprocess.Popen(
            [*command, *asked], cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        while process.poll() is None and not (out / "03-users").exists():
            time.sleep(0.05)
        time.sleep(0.2)  # Its 20 requests take a second, and other levels follow.
        os.kill(process.pid, signal.SIGINT)
        shown, said = process.communicate(timeout=60)
    sweep = load_sweep(out)
    assert process.returncode == 1, said
    assert sweep.early
    assert said.splitlines()[-1].startswith("servetwin: interrupted")
    assert f"{len(sweep.levels)} finished levels" in said.splitlines()[-1]
    assert shown.startswith("CUT OFF: interrupted")
    assert json.loads((out / "report.json").read_text())["verdict"] == "CUT OFF"
    assert (out / "report.html").exists()
    assert "Traceback" not in said


SLOW, FAST = LevelPlan(3, "rate", 2.0), LevelPlan(4, "rate", 4.0)
USERS = LevelPlan(5, "users", users=3)
ALONE, AT_ONCE = LevelPlan(1, "synchronous", users=1), LevelPlan(2, "throughput")


def generated(**more: object) -> LevelLoad:
    return LevelLoad(LoadChoice(sweep=LevelSweepOptions("slo"), **more))  # type: ignore[arg-type]


@pytest.fixture
def replayed(tmp_path: Path) -> LevelLoad:
    path = tmp_path / "trace.jsonl"
    write_trace(trace_of(*(0.5 * number for number in range(40))), path)
    return LevelLoad(LoadChoice(path, sweep=LevelSweepOptions("rates")))


def test_a_generated_level_has_its_rate_and_requests_of_its_own() -> None:
    slow, fast = (generated().trace(plan) for plan in (SLOW, FAST))
    assert len(slow) == len(fast) == GENERATED_REQUESTS
    assert slow.rate_per_s == pytest.approx(2.0, rel=0.2)
    assert fast.rate_per_s == pytest.approx(4.0, rel=0.2)
    lengths = [[request.prompt_tokens for request in trace] for trace in (slow, fast)]
    assert lengths[0] != lengths[1]
    assert generated().trace(SLOW) == slow
    assert generated(seed=1).trace(SLOW).requests != slow.requests


def test_the_default_size_of_a_level_can_prove_the_default_share() -> None:
    assert least_requests(0.99) <= GENERATED_REQUESTS


def test_a_trace_keeps_its_requests_and_scales_its_gaps(replayed: LevelLoad) -> None:
    slow, fast = (replayed.trace(plan) for plan in (SLOW, FAST))
    assert [r.request_id for r in slow] == [r.request_id for r in fast]
    assert [r.arrival_s / 2 for r in slow] == pytest.approx([r.arrival_s for r in fast])
    assert replayed.predicted_trace().requests[-1].arrival_s == 19.5


def test_the_ends_are_one_user_and_all_at_once(replayed: LevelLoad) -> None:
    for load in (replayed, generated()):
        alone, at_once = load.trace(ALONE), load.trace(AT_ONCE)
        assert len(alone) == SYNCHRONOUS_REQUESTS
        assert [r.parent_ids for r in alone][1:] == [(r.request_id,) for r in alone][:-1]
        assert {r.arrival_s for r in at_once} == {0.0}
        assert load.of(ALONE).options().concurrency == 1
        assert load.of(AT_ONCE).options().concurrency is None


def test_users_think_and_the_ends_do_not() -> None:
    sweep = LevelSweepOptions("users", requests=30)
    load = LevelLoad(LoadChoice(sweep=sweep, think_time="2", ramp_up_s=6.0, warm_up_s=1.0))
    users = load.trace(USERS)
    assert len(users) == 30
    assert {r.tenant for r in users} == {"user-1", "user-2", "user-3"}
    assert {r.delay_s for r in users} == {2.0}
    assert {r.delay_s for r in load.trace(ALONE)} == {0.0}
    assert [load.of(plan).warm_up_s for plan in (USERS, ALONE, AT_ONCE)] == [1.0, 0.0, 0.0]


def test_a_generated_knee_is_predicted_on_more_requests_than_a_level_has() -> None:
    assert len(generated().predicted_trace()) == LEAST_PREDICTED
