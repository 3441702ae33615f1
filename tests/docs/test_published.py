"""docs/techniques/published.md has all tables and all known errors, as they are."""

import re

from tests.support.paths import DOCS
from tests.support.published.errors import ERRORS
from tests.support.published.tables import TABLES

PAGE = (DOCS / "techniques" / "published.md").read_text()


def test_the_page_has_every_table_with_its_title() -> None:
    rows = dict(re.findall(r"^\| `([\w-]+)` \| (.*) \|$", PAGE, re.MULTILINE))
    assert rows == {name: table.title for name, table in TABLES.items()}


def test_the_page_has_every_known_error() -> None:
    assert dict(re.findall(r"^\| (E\d+) \| (.*) \|$", PAGE, re.MULTILINE)) == ERRORS
