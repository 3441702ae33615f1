"""The documentation as a site: it builds, loads no outside file, and its reference is whole."""

import re
from dataclasses import fields
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from servetwin.app.cli import app
from servetwin.app.scenario.files.scenario_file import Limits, ScenarioFile, Workload
from servetwin.app.scenario.options.deployment import Deployment
from servetwin.app.scenario.scenarios import scenario_record
from servetwin.app.words import METRICS
from servetwin.loadtest.report.records import EXTRA_COLUMNS
from servetwin.loadtest.report.server_metrics import COLUMNS as SERVER_COLUMNS
from servetwin.policies.config import PolicyConfig
from servetwin.policies.presets import PRESETS
from servetwin.policies.registry import EVICTION_ORDERS, MEMORIES, ROUTERS, SCHEDULERS
from servetwin.sim.core.recorder import STEP_COLUMNS, USAGE_COLUMNS
from servetwin.sim.experiments.scenario import ClusterConfig
from servetwin.sim.records.metrics import REQUEST_COLUMNS
from servetwin.sim.records.run import HANDOVER_COLUMNS, PAUSE_COLUMNS
from servetwin.sim.techniques.registry import TECHNIQUES
from servetwin.workloads.generators.processes import ARRIVALS
from servetwin.workloads.readers.registry import READERS
from servetwin.workloads.reading import sample_trace
from tests.support.built_site import build
from tests.support.paths import ROOT

FETCHED = {"script": "src", "link": "href", "img": "src", "iframe": "src"}
COLUMNS = (
    *REQUEST_COLUMNS, *EXTRA_COLUMNS, *STEP_COLUMNS, *USAGE_COLUMNS, *PAUSE_COLUMNS,
    *HANDOVER_COLUMNS, *SERVER_COLUMNS,
)  # fmt: skip


class Reader(HTMLParser):
    """What a page fetches, and the cells of its tables."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.rows: list[list[str]] = []
        self._in_cell = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in FETCHED and (target := dict(attrs).get(FETCHED[tag])):
            self.fetched.append(target)
        if tag == "tr":
            self.rows.append([])
        if tag == "td":
            self.rows[-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        self._in_cell = self._in_cell and tag != "td"

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.rows[-1][-1] += data


def read(page: Path) -> Reader:
    reader = Reader()
    reader.feed(page.read_text())
    return reader


def test_no_page_asks_for_anything_outside(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        fetched = read(page).fetched
        assert fetched
        assert [target for target in fetched if re.match(r"(https?:)?//", target)] == [], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", sheet.read_text()), sheet


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("scenario", [field.name for field in fields(PolicyConfig)]),
        ("scenario", [field.name for field in fields(ClusterConfig)]),
        ("scenario", list(ScenarioFile.model_fields)),
        (
            "scenario",
            [*Workload.model_fields, *(f.name for f in fields(Deployment)), *Limits.model_fields],
        ),
        ("techniques", list(TECHNIQUES)),
        ("presets", list(PRESETS)),
        (
            "plug-ins",
            [*SCHEDULERS, *MEMORIES, *EVICTION_ORDERS, *ROUTERS, *ARRIVALS, *READERS, *TECHNIQUES],
        ),
        ("columns", COLUMNS),
        ("metrics", list(METRICS)),
    ],
)
def test_the_reference_says_what_every_name_means(
    site: Path, page: str, names: tuple[str, ...]
) -> None:
    rows = {row[0]: row for row in read(site / "reference" / f"{page}.html").rows if row}
    assert [name for name in names if not rows[name][-1]] == []


def commands(command: Any, name: str) -> list[tuple[str, Any]]:
    subs = getattr(command, "commands", {}).values()
    return [
        (name, command),
        *(pair for sub in subs for pair in commands(sub, f"{name} {sub.name}")),
    ]


def test_the_reference_has_every_command_and_option(site: Path) -> None:
    page = site / "reference" / "command-line.html"
    text, rows = page.read_text(), read(page).rows
    options = {name: row[-1] for row in rows if len(row) == 4 for name in row[0].split(", ")}
    for name, command in commands(get_command(app), "servetwin"):
        assert f">{name}<" in text
        for parameter in command.params:
            if parameter.param_type_name == "option" and parameter.name != "help":
                assert all(options[option] for option in parameter.opts), (name, parameter.name)


@pytest.mark.parametrize(
    "servers", [Deployment(profile=("base-cpu",)), Deployment(model="llama-3-8b", gpu="h100")]
)
def test_the_reference_has_every_key_of_a_run(site: Path, servers: Deployment) -> None:
    rows = read(site / "reference" / "scenario.html").rows
    known = {key for row in rows if len(row) == 2 for key in row[0].split(", ")}
    record = scenario_record(sample_trace(), servers.scenario(), servers.settings(), 0)
    assert record.keys() <= known


def test_code_is_highlighted_when_the_site_is_built(site: Path) -> None:
    page = (site / "guides" / "own-policy.html").read_text()
    assert '<span class="kn">import</span>' in page
    assert 'class="language-bash highlight"' in page


@pytest.mark.parametrize(
    ("link", "code", "problem"),
    [
        ("tutorial.md", 0, ""),
        ("nowhere.md", 1, "'tutorial.md' contains a link 'nowhere.md'"),
        ("tutorial.md#nowhere", 1, "'tutorial.md#nowhere', but"),
    ],
)
def test_a_broken_link_is_an_error(link: str, code: int, problem: str, tmp_path: Path) -> None:
    """With the settings of the site, on a site of one page."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "tutorial.md").write_text(f"# Tutorial\n\n[somewhere]({link})\n")
    settings = f"INHERIT: {ROOT / 'mkdocs.yml'}\nnav: [tutorial.md]\nhooks: []\n"
    (tmp_path / "mkdocs.yml").write_text(settings)
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode == code, done.stderr
    assert problem in done.stderr
