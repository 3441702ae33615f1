"""Every figure that the notes print is computed here, or the reason why not is known."""

import re

import pytest

from servetwin.sim.published.tables import TABLES, find_table
from servetwin.workloads.errors import PolicyError

SIMULATED = "frameworks"
NAMES = [pytest.param(n, marks=pytest.mark.slow) if n == SIMULATED else n for n in TABLES]


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_is_the_printed_one_or_differs_for_a_reason(name: str) -> None:
    """The table of tests of all that has a number; a reason of what agrees is out of date."""
    rows = list(TABLES[name].rows())
    assert rows
    assert [claim for claim in rows if claim.agrees == bool(claim.why)] == []
    assert len({claim.what for claim in rows}) == len(rows)


def test_there_are_hundreds_of_figures() -> None:
    assert sum(len(list(table.rows())) for n, table in TABLES.items() if n != SIMULATED) > 300


def test_all_75_cells_of_intensity_are_compared() -> None:
    cells = re.compile(r"(projections|attention|FFN), n = \d+, l = \d+")
    assert sum(bool(cells.fullmatch(c.what)) for c in TABLES["intensity"].rows()) == 75


@pytest.mark.parametrize(
    ("name", "hint"), [("afine-quantisation", "did you mean 'affine-quantisation'?"), ("", "there")]
)
def test_an_unknown_table_is_refused_with_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(PolicyError, match=f"unknown table '{name}'; {hint}"):
        find_table(name)
