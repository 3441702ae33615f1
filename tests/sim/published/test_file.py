"""``published.json`` has every table as it is computed here."""

import pytest

from servetwin.app.reports.techniques.published import find_table, published_tables
from servetwin.workloads.errors import PolicyError
from tests.support.published.file import computed_table
from tests.support.published.tables import TABLES

SIMULATED = ("effects", "frameworks")


def test_the_file_has_every_table() -> None:
    assert list(published_tables()) == ["effects", *TABLES]


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n in SIMULATED else n for n in published_tables()],
)
def test_a_table_of_the_file_is_the_computed_one(name: str) -> None:
    kept, computed = find_table(name), computed_table(name)
    assert (kept["title"], kept["items"]) == (computed["title"], computed["items"])
    for row, expected in zip(kept["rows"], computed["rows"], strict=True):
        assert (row["what"], row["printed"], row["why"]) == (
            expected["what"],
            expected["printed"],
            expected["why"],
        )
        here = expected["here"]
        same = here if isinstance(here, str) else pytest.approx(here, rel=1e-12)
        assert row["here"] == same


@pytest.mark.parametrize(
    ("name", "hint"), [("afine-quantisation", "did you mean 'affine-quantisation'?"), ("", "there")]
)
def test_an_unknown_table_is_refused_with_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(PolicyError, match=f"unknown table '{name}'; {hint}"):
        find_table(name)
