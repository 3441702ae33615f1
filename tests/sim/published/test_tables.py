"""Every figure that the notes print is computed here, or the reason why not is known."""

import pytest

from sim.published.claim import Claim
from sim.published.tables import TABLES, find_table
from workloads.errors import PolicyError

CLAIMS = [
    pytest.param(claim, id=f"{name}: {claim.what}: {claim.printed}")
    for name, table in TABLES.items()
    for claim in table.rows()
]
"""A table of tests: the sign and the size of all that has a number."""


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_figure_is_the_printed_one_or_differs_for_a_reason(claim: Claim) -> None:
    """A reason of a figure that agrees would be out of date."""
    assert claim.agrees == (not claim.why), claim


def test_there_are_hundreds_of_them() -> None:
    assert len(CLAIMS) > 300


def test_all_75_cells_of_intensity_are_compared() -> None:
    assert sum(", l = " in claim.what for claim in TABLES["intensity"].rows()) == 75


@pytest.mark.parametrize(
    ("name", "hint"), [("afine-quantisation", "did you mean 'affine-quantisation'?"), ("", "there")]
)
def test_an_unknown_table_is_refused_with_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(PolicyError, match=f"--table: unknown table '{name}'; {hint}"):
        find_table(name)
