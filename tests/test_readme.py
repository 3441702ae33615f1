"""The README names what there is, and leads to it. ``test_docs_examples`` runs it."""

import re

from servetwin.app.cli import COMMANDS
from tests.support.paths import ROOT

README = (ROOT / "README.md").read_text()


def test_every_command_of_the_readme_exists() -> None:
    named = set(re.findall(r"servetwin ([a-z]+)", README))
    assert named <= {name.split()[0] for name in COMMANDS}
    assert {"replay", "serve", "calibrate", "loadtest", "verify", "workload"} <= named


def test_its_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#\s]+)\)", README)
    assert len(links) > 8
    assert [link for link in links if not (ROOT / link).exists()] == []


def rows(page: str, start: str) -> list[list[str]]:
    """The cells of the rows of a table that begin so."""
    lines = re.findall(rf"^\| {re.escape(start)}.*$", page, re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_its_figures_are_those_of_the_results() -> None:
    """The table of errors is the short form of those with both sides."""
    results = (ROOT / "docs" / "results.md").read_text()
    live = rows(README, "bundled engine, ")
    assert len(live) == 3
    for server, _, ttft, tpot, batches in live:
        policy = re.escape(server.partition(", ")[2])
        (full,) = re.findall(rf"^\| {policy} \| [\d.]+/s .*$", results, re.MULTILINE)
        _, found_tpot, found_ttft, _ = re.findall(r"\(([-+][\d.]+ %), ([\d.]+ %)\)", full)
        assert [f"{error} ({spread})" for error, spread in (found_ttft, found_tpot)] == [ttft, tpot]
        assert batches in full


def test_its_figures_of_recorded_gpus_are_those_of_the_results() -> None:
    results = (ROOT / "docs" / "results.md").read_text()
    sources = {
        "layer times": "layer times",
        "data sheets alone": "computed from data sheets",
        "kernel tables alone": "kernel tables",
    }
    recorded = rows(README, "vLLM, ")
    assert len(recorded) == 4
    for server, source, *errors, _ in recorded:
        gpu = server.split(", ")[1]
        full = rows(results.split("## Real GPUs")[1], f"{gpu} | {sources[source]} |")[0]
        means = [re.findall(r"\(([-+][\d.]+ %)\)", cell)[0] for cell in full[2:4]]
        assert means == errors
