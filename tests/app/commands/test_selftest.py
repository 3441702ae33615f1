"""``servetwin selftest``: a table or JSON, and exit 1 for a figure off its closed form."""

import json

import pytest
from typer.testing import CliRunner, Result

import servetwin.app.tasks.selftest as command
from servetwin.app.cli import app


def selftest(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["selftest", *arguments])


def test_a_table_of_exact_and_measured_figures() -> None:
    done = selftest()
    assert done.exit_code == 0
    head, *rows = done.stdout.splitlines()
    assert head.split() == ["exact", "measured", "+-", "99.9", "%"]
    assert [row[:28].strip() for row in rows] == [
        "M/D/1 mean wait, s",
        "M/M/1 mean wait, s",
        "Little's law, relative gap",
    ]
    assert [row[28:40].strip() for row in rows] == ["0.5", "1", "0"]
    assert all(row.endswith("holds") for row in rows)


def test_json_has_every_figure_in_a_narrow_interval() -> None:
    summary = json.loads(selftest("--json").stdout)
    assert (summary["holds"], summary["confidence"]) == (True, 0.999)
    deterministic, exponential, little = summary["checks"]
    assert deterministic["half_width"] < 0.1
    assert exponential["half_width"] < 0.3
    assert little["half_width"] == 1e-9


def test_a_figure_that_fails_is_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        command, "closed_form_checks", lambda: [command.ClosedFormCheck("wait", 1.0, 1.2, 0.1)]
    )
    done = selftest()
    assert done.exit_code == 1
    assert "FAILED" in done.stdout
    assert "servetwin: 1 of 1 checks failed" in done.stderr
