"""Help texts: settings are described as in the scenario, when help is shown and not before."""

import subprocess
import sys

from servetwin.app.scenario.setting_docs import setting_docs
from servetwin.policies.registry import SCHEDULERS
from tests.support.command import servetwin

HEAVY = ("numpy", "pandas", "pydantic", "simpy", "torch")


def test_help_describes_settings_with_their_choices() -> None:
    shown = " ".join(servetwin("replay", "--help").out.replace("│", " ").split())
    assert all(name in shown for name in SCHEDULERS)
    assert setting_docs()["policies.max_seqs"].sentence in shown
    assert "{" not in shown


def test_the_options_of_a_group_are_described_too() -> None:
    shown = " ".join(servetwin("techniques", "--help").out.replace("│", " ").split())
    assert "Draws of load and engine" in shown
    assert "{" not in shown


def test_the_list_of_commands_imports_nothing_heavy() -> None:
    program = (
        "import sys; from typer.main import get_command; from servetwin.app.cli import app; "
        "get_command(app); print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) & set(HEAVY) == set()
