"""``published.json`` has every table as it is computed here."""

import pytest

from tests.support.published.file import computed_table
from tests.support.published.kept_tables import published_tables
from tests.support.published.tables import TABLES

SIMULATED = ("effects", "frameworks")


def test_the_file_has_every_table() -> None:
    assert list(published_tables()) == ["effects", *TABLES]


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n in SIMULATED else n for n in published_tables()],
)
def test_a_table_of_the_file_is_the_computed_one(name: str) -> None:
    kept, computed = published_tables()[name], computed_table(name)
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
