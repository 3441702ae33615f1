"""The README names what there is, and leads to it. ``test_docs_examples`` runs it."""

import re

from typer.main import get_command

from app.cli import app
from tests.support.paths import ROOT

README = (ROOT / "README.md").read_text()


def test_every_command_of_the_readme_exists() -> None:
    named = set(re.findall(r"servetwin ([a-z]+)", README))
    assert named <= set(get_command(app).commands)  # type: ignore[attr-defined]
    assert {"replay", "serve", "calibrate", "loadtest", "verify", "workload"} <= named


def test_its_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#\s]+)\)", README)
    assert len(links) > 8
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_its_figures_are_those_of_the_results() -> None:
    """The table of errors is the short form of the one with both sides."""
    results = (ROOT / "docs" / "results.md").read_text()
    rows = re.findall(r"^\| ([a-z+-]+) \|(.*) (\d+ of \d+) \|$", README, re.MULTILINE)
    assert len(rows) == 6
    for policy, cells, batches in rows:
        errors = re.findall(r"([-+][\d.]+ %) \(([\d.]+ %)\)", cells)
        (full,) = re.findall(rf"^\| {re.escape(policy)} \| [\d.]+/s .*$", results, re.MULTILINE)
        assert re.findall(r"\(([-+][\d.]+ %), ([\d.]+ %)\)", full) == errors
        assert batches in full
