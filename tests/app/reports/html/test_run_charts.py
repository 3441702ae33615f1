"""The charts of runs: one of a simulation, one of a load test, and several side by side."""

from pathlib import Path

import pytest

pytest.importorskip("plotly", reason="figures need plotly")

from servetwin.app.figures.canvas import looks
from servetwin.app.reports.html.run_charts import MOST_TIMELINES, run_charts
from servetwin.app.reports.report_folders import NamedRun
from servetwin.sim.records.metrics import SLO
from servetwin.sim.records.run import Run, load_run
from tests.support.report_runs import pretended, simulated


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder: Path = tmp_path_factory.mktemp("charts") / "run"
    return load_run(simulated(folder, "--kv-usage"))


def titles(*runs: Run) -> dict[str, list[str]]:
    """The titles of the charts, by section."""
    named = [NamedRun(f"run {number}", run) for number, run in enumerate(runs)]
    found: dict[str, list[str]] = {}
    for section, title, figure in run_charts(named, looks(n.name for n in named), SLO(0.5)):
        assert figure.alt
        found.setdefault(section, []).append(title)
    return found


def test_a_simulation_has_its_server_and_its_memory(run: Run) -> None:
    assert titles(run) == {
        "Distributions": [f"Distribution of {label}" for label in ("TTFT", "TPOT", "E2E latency")],
        "Over time": [
            "TTFT over time",
            "TPOT over time",
            "Output throughput over time",
            "Requests running and waiting, and KV memory",
        ],
        "Requests and memory": ["Requests of run 0", "KV memory, mean over the run"],
    }


def test_a_load_test_has_its_chunk_gaps_and_its_lag(run: Run) -> None:
    found = titles(pretended(run))
    assert found["Distributions"][-1] == "Chunk gaps (ITL)"
    assert found["Over time"][-1] == "Schedule lag: how late the client was"


def test_many_runs_have_no_timelines_of_single_requests(run: Run) -> None:
    assert len(titles(*[run] * MOST_TIMELINES)["Requests and memory"]) == MOST_TIMELINES + 1
    assert len(titles(*[run] * (MOST_TIMELINES + 1))["Requests and memory"]) == 1
