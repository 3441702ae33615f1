"""A minute of command lines that no run before has tried; a failure names its seed."""

import secrets

import pytest

from tests.fuzz.campaign import Budget, run
from tests.fuzz.command_lines import COMMANDS, CommandLines, draw
from tests.fuzz.costs import Costs
from tests.support.command import commands


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_command_line_ends_as_it_should() -> None:
    lines = CommandLines()
    searching = Costs(cpu_s=20.0)  # a plan of lanes simulates for 6 s
    budget = Budget(cases=20, minutes=1)
    run("command_lines", draw, lines.check, secrets.randbits(32), budget, costs=searching)
    assert {code for _, code in lines.codes} >= {0, 2}


def test_every_command_that_ends_soon_is_tried() -> None:
    others = {
        "serve", "record", "dashboard", "demo", "selftest", "verify", "calibrate", "techniques",
        "techniques list", "techniques intensity", "techniques formats", "list models",
        "list profiles", "list presets", "list policies", "workload named", "replay compare",
    }  # fmt: skip
    assert set(commands().commands) == set(COMMANDS) | others
