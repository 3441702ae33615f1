"""The page of third-party licences has what is needed, in the versions that are locked."""

import re
from importlib.util import find_spec

import pytest

pytest.importorskip("packaging", reason="packages are compared by their requirements")

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
LOCKED = dict(re.findall(r"^([\w.-]+)==([^+\s]+)", (ROOT / "constraints.txt").read_text(), re.M))


def test_every_package_that_is_needed_has_a_row_and_no_other() -> None:
    """``make licences`` writes the page."""
    assert set(ROWS) == needed() & {canonicalize_name(name) for name in LOCKED}


def test_tools_and_what_other_systems_need_are_left_out() -> None:
    assert needed() >= {"numpy", "httpcore", "streamlit", "torch", "kaleido", "choreographer"}
    assert needed().isdisjoint({"pytest", "mkdocs-material", "griffelib"})
    assert find_spec("colorama") is None or "colorama" not in needed()


@pytest.mark.parametrize("name", ROWS)
def test_a_row_has_the_locked_version_and_a_licence(name: str) -> None:
    version, licence = ROWS[name]
    locked = {canonicalize_name(key): value for key, value in LOCKED.items()}
    assert version.partition("+")[0] == locked[name]
    assert licence not in ("", "UNKNOWN")
