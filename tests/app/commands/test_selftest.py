"""``servetwin selftest``: a table or JSON; one line for a wrong name, exit 1 for failures."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner, Result

from servetwin.app.cli import app
from servetwin.sim.theory.selftest.case import SelftestCase
from servetwin.sim.theory.selftest.judge import CASES, UnknownCase

QUICK = ("static-makespan", "pipeline")


def selftest(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["selftest", *arguments])


def test_a_table_of_exact_and_measured_figures() -> None:
    """Two scenarios, so two processes; they come back in the order asked for."""
    done = selftest("--only", QUICK[0], "--only", QUICK[1])
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert "exact" in lines[0]
    assert "measured" in lines[0]
    assert lines[1].startswith("static-makespan: one static batch of 8")
    assert lines[2].split() == ["makespan", "10.0527", "10.0527", "0", "holds"]
    assert lines[3].startswith("pipeline: ")
    assert lines[-1] == "4 of 4 figures hold"


def test_json_has_every_figure_and_the_verdict() -> None:
    done = selftest("--only", "static-uniform", "--json")
    summary = json.loads(done.stdout)
    assert (summary["holds"], summary["confidence"]) == (True, 0.999)
    (figure,) = summary["figures"]
    assert figure["scenario"] == "static-uniform"
    assert figure["exact"] == pytest.approx(0.5634656)
    assert abs(figure["measured"] - figure["exact"]) <= figure["half_width"]


def test_a_figure_that_fails_is_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = CASES["static-makespan"]
    monkeypatch.setitem(CASES, scenario.name, replace(scenario, exact={"makespan": 10.0}))
    done = selftest("--only", scenario.name)
    assert done.exit_code == 1
    assert "FAILED" in done.stdout
    assert "servetwin: 1 of 1 figures do not hold" in done.stderr


def test_an_unknown_name_is_an_error_of_the_user() -> None:
    done = selftest("--only", "erlang")
    assert isinstance(done.exception, UnknownCase)
    assert (done.exception.exit_code, done.stdout) == (2, "")
    assert "did you mean 'erlang-" in str(done.exception)


@pytest.mark.parametrize("scenario", CASES.values(), ids=CASES)
def test_lines_fit_100_columns(scenario: SelftestCase) -> None:
    assert len(f"{scenario.name}: {scenario.setting}") <= 100
    assert all(len(figure) <= 25 for figure in scenario.exact)
