"""``verify``: over HTTP, on a simulated server in real time, and of techniques."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Never

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("torch")
from servetwin.app.reports.report_folders import find_runs
from servetwin.app.tasks import verify
from servetwin.app.tasks.verify import VerifyTask
from servetwin.app.verdict.claims import EXIT_CODES
from servetwin.app.verdict.verification import STEP_LOG_UTILISATIONS
from servetwin.sim.records.run import load_run
from servetwin.workloads.readers.native import write_trace
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.command import refused, servetwin


@pytest.mark.slow
def test_verify_takes_any_endpoint_and_judges(black_box_url: str, tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    requests = [Request(str(i), 0.05 * i, 10 + i, 4) for i in range(30)]
    write_trace(Trace(tuple(requests), "t"), trace)
    options = ("--max-minutes", 1.0, "--max-requests", 80, "--repeats", 2)
    at = ("verify", "--url", black_box_url, "--trace", trace)
    done = servetwin(*at, *options, "--utilisation", 0.5, "--out", tmp_path / "v")
    assert done.code in (0, 1, 3), done.err
    (folder,) = (tmp_path / "v").glob("*/")
    verdict = json.loads((folder / "verdict.json").read_text())
    assert done.code == EXIT_CODES[verdict["outcome"]], done.err
    assert "calibrating as a black box" in done.err
    assert "VERDICT: " in done.out
    assert folder.name == verdict["policy"]
    (level,) = verdict["levels"]
    assert level["utilisation"] == 0.5
    assert verdict["comparison"] == level["comparison"]
    assert load_run(folder / "at-50" / "predicted").kind == "simulation"
    assert load_run(folder / "at-50" / "measured-1").kind == "loadtest"
    _, (trial,) = find_runs([tmp_path / "v"])
    assert json.loads(json.dumps(trial.comparison.as_dict())) == level["comparison"]


def given(loads: tuple[float, ...]) -> list[object]:
    """Return the options that name the loads."""
    return [word for load in loads for word in ("--utilisation", load)]


@pytest.mark.parametrize("loads", [(), (0.5,), (0.85, 0.5, 0.7)])
def test_every_load_given_is_planned_in_its_order(
    loads: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[tuple[float, ...]] = []

    def plan_only(configs: object, choice: object, task: VerifyTask) -> Iterator[Never]:
        planned.append(task.plan.utilisations)
        return iter(())

    monkeypatch.setattr(verify, "verify_policies", plan_only)
    monkeypatch.setattr(verify, "finish", lambda *_: None)
    assert servetwin("verify", *given(loads)).code == 0
    assert planned == [loads or STEP_LOG_UTILISATIONS]


@pytest.mark.parametrize("loads", [(0.7, 0.7), (0.5, 0.701, 0.7)])
def test_loads_that_would_share_a_folder_are_refused(loads: tuple[float, ...]) -> None:
    line = refused("verify", *given(loads))
    assert "--utilisation: 70 % is given 2 times; loads must differ by at least 0.01" in line


def test_requests_that_the_endpoint_cannot_take_are_counted(
    black_box_url: str, tmp_path: Path
) -> None:
    trace = tmp_path / "long.jsonl"
    lengths = [10] * 18 + [190, 250]
    write_trace(
        Trace(tuple(Request(str(i), 0.1 * i, n, 20) for i, n in enumerate(lengths)), "t"), trace
    )
    line = refused("verify", "--url", black_box_url, "--outside", "--trace", trace)
    assert "2 of 20 requests are longer than the 200 tokens" in line


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--technique", "int9"], "technique: unknown technique 'int9'"),
        (["--technique", "prefix-cache:indx=hash"], "technique prefix-cache: unknown parameter"),
        (["--technique", "prefix-cache", "--url", "http://x"], "--url: not with --technique"),
        (["--technique", "prefix-cache", "--why"], "--why: not with --technique"),
        (["--technique", "prefix-cache", "--utilisation", "0.5"], "--utilisation: not with"),
        (["--technique", "prefix-cache", "--hardware", "h100"], "--gpu: goes with --recorded"),
        (
            [
                "--technique",
                "prefix-cache",
                "--policy",
                "static+paged",
                "--policy",
                "chunked+paged",
            ],
            "--policy: not with --technique",
        ),
        (
            ["--technique", "copy-on-write"],
            "technique copy-on-write: it changes requests of which several answers are wanted",
        ),
        (["--without", "prefix-cache"], "--without: goes with --recorded"),
        (["--technique", "prefix-cache", "--preset", "vllm-v1"], "--preset: goes with --recorded"),
    ],
)
def test_bad_input_is_one_line(options: list[str], message: str) -> None:
    assert refused("verify", "--model", "tiny", *options).startswith(f"servetwin: {message}")


@pytest.mark.quiet
def test_what_cannot_run_is_refused_with_the_reason() -> None:
    line = refused("verify", "--model", "tiny", "--technique", "cascade:small=tiny")
    assert "technique cascade: the bundled engine cannot run it, it has nothing for" in line
