"""The evidence: data with date and source, commands that exist, and one page of all of it."""

import importlib.util
import re

import pytest
from evidence_page import FOLDER, SECTIONS, cells, evidence_page

from servetwin.sim.techniques.quality import published_quality
from tests.benchmarks.confirmed_techniques import condensed, lines
from tests.docs.test_examples import parse
from tests.support.evidence import TABLES, rows
from tests.support.paths import ROOT

PAGE = evidence_page()
README = (ROOT / "README.md").read_text()
COMPUTED = re.compile(r"^- name: ([\w-]+)$", re.M)


def test_every_file_is_a_section_and_every_name_is_unique() -> None:
    assert {path.stem for path in FOLDER.glob("*.yml")} == set(SECTIONS)
    named = [name for path in FOLDER.glob("*.yml") for name in COMPUTED.findall(path.read_text())]
    assert sorted(named) == sorted(TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_whole_and_on_the_page(name: str) -> None:
    entry = TABLES[name]
    assert entry.keys() <= {
        "name", "title", "date", "machine", "source", "command", "note", "rows", "made_by",
    }  # fmt: skip
    assert f"### {entry['title']} {{#{name}}}" in PAGE
    if "rows" in entry:
        heads, *body = cells(entry)
        assert body
        assert {len(row) for row in body} == {len(heads)}


def computed() -> set[str]:
    text = [(FOLDER / f"{name}.yml").read_text() for name in ("computed", "claims")]
    return {name for part in text for name in COMPUTED.findall(part)}


@pytest.mark.parametrize("name", sorted(TABLES.keys() - computed()))
def test_a_measured_figure_has_a_date_and_says_where_it_was_measured(name: str) -> None:
    entry = TABLES[name]
    assert re.fullmatch(r"20\d\d-\d\d(-\d\d)?", entry["date"])
    assert entry.keys() & {"machine", "source", "command", "note"}


COMMANDS = sorted({entry["command"] for entry in TABLES.values() if "command" in entry})


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_of_a_figure_exists(command: str) -> None:
    if module := re.match(r"python -m ([\w.]+)", command):
        assert importlib.util.find_spec(module[1])
    elif target := re.fullmatch(r"make (\w+)", command):
        assert re.search(rf"^{target[1]}:", (ROOT / "Makefile").read_text(), re.M)
    else:
        parse(command)


def test_the_page_has_every_published_quality() -> None:
    count = sum(len(series.models) for series in published_quality().series)
    section = PAGE.split("{#quality}")[1]
    assert count > 50
    assert len(re.findall(r"^\| `", section, re.M)) == count


def test_an_effect_becomes_rows_and_counts() -> None:
    effect = {
        "metric": "tpot_alone",
        "predicted": {"value": 0.5, "low": 0.45, "high": 0.55},
        "measured": 0.52,
        "measured_interval": [0.5, 0.54],
        "sign_right": True,
        "inside": True,
        "outcome": "holds",
    }
    undefined = {**effect, "predicted": None}
    record = {
        "technique": "weight-int8",
        "machine": {"processor": "a CPU"},
        "engine": {"model": "small"},
        "pairs": 3,
        "outcome": "holds",
        "effects": [effect, undefined],
    }
    shown = list(lines({"weight-int8": condensed(record, "2026-01-01")}))
    assert shown[2] == (
        "| `weight-int8` | TPOT, alone | -50 [-55, -45] | -48 [-50, -46] | right | yes |"
    )
    assert len(shown) == 5
    assert "sign is right in 1, wrong in 0" in shown[-1]


def readme_rows(start: str) -> list[list[str]]:
    lines = re.findall(rf"^\| {re.escape(start)}.*$", README, re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_readme_has_the_figures_of_the_engine() -> None:
    """Its table of errors is the short form of the one with both sides."""
    full = {row[0]: row for row in rows("policies")}
    live = readme_rows("bundled engine, ")
    assert len(live) == 3
    for server, _, ttft, tpot, batches in live:
        _, _, _, full_tpot, full_ttft, _, equal = full[server.partition(", ")[2]]
        errors = [
            re.findall(r"\(([-+][\d.]+ %), ([\d.]+ %)\)", cell)[0]
            for cell in (full_ttft, full_tpot)
        ]
        assert [f"{error} ({spread})" for error, spread in errors] == [ttft, tpot]
        assert batches == equal


def test_the_readme_has_the_figures_of_recorded_gpus() -> None:
    sources = {
        "layer times": "layer times",
        "data sheets alone": "computed from data sheets",
        "kernel tables alone": "kernel tables",
    }
    table = PAGE.split("{#real-gpus}")[1].split("\n### ")[0]
    recorded = readme_rows("vLLM, ")
    assert len(recorded) == 4
    for server, source, *errors, _ in recorded:
        gpu = server.split(", ")[1]
        row = re.findall(rf"^\| {gpu} \| {sources[source]} \|(.*)$", table, re.MULTILINE)[0]
        means = [re.findall(r"\(([-+][\d.]+ %)\)", cell)[0] for cell in row.split("|")[:2]]
        assert means == errors
