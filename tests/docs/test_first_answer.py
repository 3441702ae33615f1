"""A stranger has an answer about a CSV of their own after five commands and clicks."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "guides" / "own-trace.md").read_text()
SECTION = PAGE.partition("## From a clone to an answer")[2].partition("\n## ")[0]
BLOCKS = [block.splitlines() for block in re.findall(r"```bash\n(.*?)```", SECTION, re.DOTALL)]
CLICKS = re.findall(r"\*([A-Z][^*]+)\*", SECTION.partition("Then ")[2])
INSTALLS = ("python3 -m venv", ".venv/bin/pip install")
CSV = "created_at;input_tokens;completion_tokens\n" + "".join(
    f"2026-11-20 09:{n // 60:02}:{n % 60:02},5;{300 + n};{40 + n}\n" for n in range(200)
)


def run(line: str, folder: Path) -> str:
    done = subprocess.run(shlex.split(line), cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The clone that both ways begin with; what they would install is this environment."""
    if not (ROOT / ".git").exists():
        pytest.skip("no repository to clone")
    (tmp_path / "mine.csv").write_text(CSV)
    for commands in BLOCKS:
        assert commands[0] == "git clone REPOSITORY servetwin"
    run(BLOCKS[0][0].replace("REPOSITORY", shlex.quote(str(ROOT))), tmp_path)
    (tmp_path / "servetwin" / ".venv").symlink_to(sys.prefix)
    return tmp_path / "servetwin"


def test_it_takes_at_most_five_commands_and_clicks() -> None:
    commands, in_a_browser = BLOCKS
    assert len(commands) == 5
    assert len(in_a_browser) + len(CLICKS) == 5


def test_the_commands_lead_to_a_number_of_gpus(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(clone))
    entered, *installing, answering = BLOCKS[0][1:]
    assert entered == f"cd {clone.name}"
    assert [line.startswith(known) for line, known in zip(installing, INSTALLS, strict=True)] == [
        True, True,
    ]  # fmt: skip
    assert run(answering, clone).startswith("llama-3.1-8b on 1 x l40s, US$ 0.79 per hour: ")


def test_the_readme_has_the_way_of_the_browser() -> None:
    section = (ROOT / "README.md").read_text().partition("## Your own CSV")[2].partition("\n## ")[0]
    assert BLOCKS[1] == re.findall(r"```bash\n(.*?)```", section, re.DOTALL)[0].splitlines()
    assert re.findall(r"\*([A-Z][^*]+)\*", section) == CLICKS


def test_the_clicks_are_those_of_the_dashboard(clone: Path) -> None:
    browser = (ROOT / "tests" / "app" / "dashboard" / "test_path_own_csv.py").read_text()
    assert CLICKS[0] == "Upload"
    assert all(f'"{name}"' in browser for name in CLICKS[1:])
    assert "servetwin dashboard" in run("make -n dashboard", clone)
