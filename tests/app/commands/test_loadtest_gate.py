"""``loadtest --baseline`` and ``--baseline-url``, against mock servers with known times."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from servetwin.app.cli import app
from servetwin.loadtest.mock.server import MockServer
from servetwin.sim.records.run import load_run
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.readers.native import write_trace
from tests.support.gate_runs import noisy_run
from tests.support.mock_endpoint import evenly, mocked, plan

REQUESTS = 40
CLEAR = "tpot=50%,ttft=50%"
"""Limits beyond what a busy machine does, with servers that differ by a factor of three."""


@pytest.fixture(scope="module")
def servers() -> Iterator[list[MockServer]]:
    with mocked(plan(ttft_ms=60, itl_ms=10), plan(ttft_ms=180, itl_ms=30)) as both:
        yield both


@pytest.fixture(scope="module")
def folder(servers: list[MockServer], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gate")
    write_trace(evenly(REQUESTS, 40, 6), folder / "trace.jsonl")
    result = loadtest(folder, servers[0].url, "baseline")
    assert result.exit_code == 0, result.output
    return folder


def loadtest(folder: Path, url: str, out: str, *options: str) -> Result:
    arguments = ["--trace", str(folder / "trace.jsonl"), "--out", str(folder / out), *options]
    return CliRunner().invoke(app, ["loadtest", url, *arguments])


def judged_by_figures(found: dict[str, object], result: Result) -> bool:
    """Whether the machine let the client be on time: else there is a doubt, and no verdict."""
    codes = {"holds": 0, "refuted": 1, "cannot tell": 3}
    assert result.exit_code == codes[str(found["outcome"])]
    return not found["doubts"]


@pytest.mark.slow
def test_a_slow_server_is_refuted_against_a_run(servers: list[MockServer], folder: Path) -> None:
    options = ["--baseline", str(folder / "baseline"), "--allow", CLEAR, "--json"]
    result = loadtest(folder, servers[1].url, "slow", *options)
    found = json.loads(result.stdout)["gate"]
    rows = {row["metric"]: row for row in found["metrics"]}
    assert rows["tpot_s.mean"]["outcome"] == "refuted"
    assert rows["tpot_s.mean"]["change"] > 1
    if judged_by_figures(found, result):
        said = "servetwin: the run is worse than the baseline by more than is allowed"
        assert result.stderr.splitlines()[-1] == said
    salts = {load_run(folder / run).meta["prompt_salt"] for run in ("baseline", "slow")}
    assert len(salts) == 2, "a prefix cache that outlived the baseline must not help"


def test_the_same_server_is_not_refuted(servers: list[MockServer], folder: Path) -> None:
    options = ["--baseline", str(folder / "baseline"), "--allow", CLEAR]
    result = loadtest(folder, servers[0].url, "again", *options)
    assert result.exit_code in (0, 3)
    assert "The gate holds: 1 run against 1 baseline" in result.stdout or "Cannot" in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("slow", [True, False])
def test_two_servers_are_measured_in_turns(
    servers: list[MockServer], folder: Path, slow: bool
) -> None:
    """A known slow-down is refuted, a speed-up passes."""
    fast, slowed = servers[0].url, servers[1].url
    ours, theirs = (slowed, fast) if slow else (fast, slowed)
    out = f"turns-{slow}"
    options = ["--baseline-url", theirs, "--allow", CLEAR, "--prompt-salt", "here"]
    result = loadtest(folder, ours, out, *options, "--json")
    found = json.loads(result.stdout)
    assert (found["baselines"], found["runs"]) == (2, 1)
    if judged_by_figures(found, result):
        assert found["outcome"] == ("refuted" if slow else "holds")
    runs = [load_run(folder / out / at) for at in ("baseline/1", "run/1", "baseline/2")]
    assert [run.meta["prompt_salt"] for run in runs] == [f"here/turn/{n}" for n in range(3)]
    assert [run.scenario["endpoint"]["base_url"] for run in runs] == [
        f"{url}/v1" for url in (theirs, ours, theirs)
    ]
    starts = [run.meta["clock_zero_perf_counter_s"] for run in runs]
    assert starts == sorted(starts)
    again = ["compare", str(folder / out / "baseline"), str(folder / out / "run"), "--gate"]
    judged = CliRunner().invoke(app, [*again, "--allow", CLEAR, "--json"])
    assert json.loads(judged.stdout) == found
    assert judged.exit_code == result.exit_code


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--baseline", "{at}/baseline", "--rate", "20"], "rate 40, but 20 in this load test;"),
        (["--baseline", "{at}/baseline", "--retries", "2"], "retries 0, but 2 in this load test"),
        (["--baseline", "{at}/baseline", "--api", "chat"], "API completions, but chat in this"),
        (["--baseline", "{at}/baseline", "--limit", "9"], "has 40 requests, the trace 9;"),
        (["--baseline", "{at}/replay"], "replay: a simulation; --against judges a prediction"),
        (
            ["--baseline", "{at}/baseline", "--baseline-url", "http://x"],
            "--baseline and --baseline-url exclude each other: give one",
        ),
        (
            ["--against", "{at}/replay", "--baseline", "{at}/baseline"],
            "--against and --baseline exclude each other: give one",
        ),
        (["--allow", "tpot=5%"], "--allow: needs a baseline: give --baseline or"),
        (["--baseline", "{at}/baseline", "--allow", "tpot=5"], "tpot=5: not a share such as 5%"),
        (["--baseline-url", "http://x", "--html", "x.html"], "--html and --baseline-url: there"),
    ],
)
def test_what_cannot_be_judged_is_refused_before_anything_is_sent(
    servers: list[MockServer], folder: Path, options: list[str], message: str
) -> None:
    noisy_run(kind="simulation").save(folder / "replay")
    sent = servers[0].text_requests
    given = [option.format(at=folder) for option in options]
    result = loadtest(folder, servers[0].url, "never", *given)
    assert isinstance(result.exception, LoadTestError)
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)
    assert servers[0].text_requests == sent
    assert not (folder / "never").exists()


def test_users_without_an_end_have_no_baseline(folder: Path, servers: list[MockServer]) -> None:
    arguments = ["--concurrency", "2", "--duration", "1", "--baseline", str(folder / "baseline")]
    result = CliRunner().invoke(app, ["loadtest", servers[0].url, *arguments])
    assert isinstance(result.exception, LoadTestError)
    assert str(result.exception).startswith("--baseline: users that send until --duration")
