"""The page of third-party licences has what is needed, in the versions that are locked."""

import re
from importlib.metadata import version
from importlib.util import find_spec

import pytest
from licences import needed
from packaging.utils import canonicalize_name

from tests.support.paths import DOCS, ROOT

ROWS = {
    canonicalize_name(name): (version, licence)
    for name, version, licence in re.findall(
        r"^\| ([\w.-]+) \| (\d\S*) \| (.+) \|$",
        (DOCS / "third-party-licences.md").read_text(),
        re.MULTILINE,
    )
}
LOCKED = {
    canonicalize_name(name): locked
    for name, locked in re.findall(
        r"^([\w.-]+)==([^+\s]+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE
    )
}
as_locked = pytest.mark.skipif(
    version("numpy") != LOCKED[canonicalize_name("numpy")],
    reason="other versions need other packages",
)


@as_locked
def test_every_package_that_is_needed_has_a_row_and_no_other() -> None:
    """``make licences`` writes the page."""
    assert set(ROWS) == needed() & LOCKED.keys()


def test_tools_and_what_other_systems_need_are_left_out() -> None:
    assert needed() >= {"numpy", "httpcore", "streamlit", "torch", "kaleido", "choreographer"}
    assert needed().isdisjoint({"pytest", "mkdocs-material", "griffelib"})
    assert find_spec("colorama") is None or "colorama" not in needed()


def test_rows_have_the_locked_versions_and_a_licence() -> None:
    listed = {name: row[0].partition("+")[0] for name, row in ROWS.items()}
    assert listed == {name: LOCKED[name] for name in ROWS}
    assert [name for name, row in ROWS.items() if row[1] in ("", "UNKNOWN")] == []
