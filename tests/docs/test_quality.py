"""The page of quality shows every published figure, and nothing else."""

import re

from servetwin.sim.techniques.published_quality import published_quality
from servetwin.sim.techniques.quality import EXAMPLE
from tests.support.paths import ROOT

PAGE = (ROOT / "docs/techniques/quality.md").read_text()


def published_rows() -> list[list[str]]:
    published = published_quality()
    return [
        [
            f"`{series.technique}`",
            model,
            series.metric,
            f"{before:g}",
            f"{after:g}",
            series.task,
            series.method,
            str(published.sources[series.source]),
        ]
        for series in published.series
        for model, (before, after) in series.models.items()
    ]


def test_the_table_of_the_page_is_the_file() -> None:
    (table,) = re.findall(r"^\| technique \| model .*\n\|[-|]+\|\n((?:\|.*\n?)+)", PAGE, re.M)
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    assert found == published_rows()


def test_the_example_of_errors_has_the_form_of_the_page() -> None:
    assert "NAME=METRIC:CHANGE%@SOURCE" in PAGE
    assert EXAMPLE.partition("@")[2] in PAGE
