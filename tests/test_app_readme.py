"""The README's Python runs, and the commands that it names exist."""

import re
from pathlib import Path

from typer.main import get_command

from app.cli import app

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_python_of_the_readme_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})


def test_every_command_of_the_readme_exists() -> None:
    named = set(re.findall(r"servetwin ([a-z]+)", README))
    assert named <= set(get_command(app).commands)  # type: ignore[attr-defined]
    assert {"replay", "serve", "calibrate", "loadtest", "verify", "workload"} <= named
