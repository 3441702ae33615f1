"""Every figure that the notes print is computed here, or the reason why not is known."""

import re

import pytest

from tests.support.published.tables import TABLES

SIMULATED = "over_transformers"
NAMES = [pytest.param(n, marks=pytest.mark.slow) if n == SIMULATED else n for n in TABLES]


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_is_the_printed_one_or_differs_for_a_reason(name: str) -> None:
    """The table of tests of all that has a number; a reason of what agrees is out of date."""
    rows = list(TABLES[name]())
    assert rows
    assert [claim for claim in rows if claim.agrees == bool(claim.why)] == []
    assert len({claim.what for claim in rows}) == len(rows)


def test_there_are_hundreds_of_figures() -> None:
    assert sum(len(list(table())) for n, table in TABLES.items() if n != SIMULATED) > 300


def test_all_75_cells_of_intensity_are_compared() -> None:
    cells = re.compile(r"(projections|attention|FFN), n = \d+, l = \d+")
    assert sum(bool(cells.fullmatch(c.what)) for c in TABLES["intensities"]()) == 75
