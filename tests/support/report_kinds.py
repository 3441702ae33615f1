"""A report of every kind of folder, of runs that were made in folders of somebody's machine."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from servetwin.app.reports.html.page import render_html
from servetwin.app.reports.report_folders import NamedRun, find_runs
from servetwin.sim.records.metrics import SLO
from servetwin.sim.records.run import Run, load_run
from tests.support.figure_frames import load_test
from tests.support.report_runs import pretended, simulated
from tests.support.swept_levels import swept
from tests.support.verifications import a_black_box_verification, a_verification

MACHINE = "/home/ann/work in progress/servers"
KINDS = ("run", "comparison", "load test", "verification", "recorded", "sweep", "many runs")
LIMITS = SLO(ttft_s=0.5, tpot_s=0.05)


@cache
def report_of(kind: str) -> str:
    """Return the page of a kind of folder."""
    with TemporaryDirectory() as place:
        return _PAGES[kind](Path(place))


def made_elsewhere(run: Run) -> Run:
    """The run as it is on the machine of somebody: its scenario and its notes name files there."""
    notes = [*run.scenario.get("notes", ()), f"read from {MACHINE}/old/trace.csv: 3 rows skipped"]
    described = {"trace": f"{MACHINE}/trace.jsonl", "notes": notes}
    served = {"profile": "/home/ann/mine.json"} if run.kind == "simulation" else {}
    return replace(run, scenario={**run.scenario, **described, **served})


def _page(runs: Sequence[Run]) -> str:
    named = [NamedRun(f"run-{number}", made_elsewhere(run)) for number, run in enumerate(runs, 1)]
    return render_html(named, [], LIMITS)


def _comparison(folder: Path) -> str:
    predicted = _predicted(folder)
    return _page([predicted, pretended(predicted, slower=2.0), load_test(60)])


def _predicted(folder: Path) -> Run:
    return load_run(simulated(folder / "simulated", "--kv-usage"))


def _trial(folder: Path, **scenario: object) -> str:
    predicted = _predicted(folder)
    measured = pretended(predicted)
    measured.scenario |= scenario
    made_elsewhere(predicted).save(folder / "trial" / "predicted")
    made_elsewhere(measured).save(folder / "trial" / "measured")
    return render_html(*find_runs([folder / "trial"]), LIMITS)


def _verification(folder: Path) -> str:
    a_black_box_verification(off=1.5).save(folder / "near")
    a_verification().save(folder / "far")
    return render_html(*find_runs([folder / "near", folder / "far"]), LIMITS)


def _sweep(folder: Path) -> str:
    levels = [NamedRun(f"level-{n}", made_elsewhere(load_test(60))) for n in range(5)]
    return render_html(levels, [], None, {"knee": swept()})


_PAGES: dict[str, Callable[[Path], str]] = {
    "run": lambda folder: _page([_predicted(folder)]),
    "comparison": _comparison,
    "load test": lambda _: _page([load_test(60)]),
    "verification": _verification,
    "recorded": lambda folder: _trial(folder, recorded_by="vLLM bench"),
    "sweep": _sweep,
    "many runs": lambda _: _page([load_test(60)] * 8),
}
