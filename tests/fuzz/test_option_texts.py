"""The fuzzer of texts of options: a right one of each, a fixed number of cases."""

import re

import pytest

from tests.fuzz import option_texts
from tests.fuzz.campaign import Budget, run
from tests.support.paths import ROOT

_READS_TEXT = re.compile(
    r"^def (?:parse_(\w+)|(\w+)_of)\(\s*texts?: (?:str|Sequence|Iterable)", re.M
)
_INSIDE = {"spec", "numbers", "records", "entry"}
"""Parts of other readers, and what reads files."""


def test_texts_are_read_or_refused() -> None:
    run("option_texts", option_texts.draw, option_texts.check, seed=15, budget=Budget(cases=2000))


@pytest.mark.parametrize("name", option_texts.KINDS)
def test_every_sample_is_right(name: str) -> None:
    kind = option_texts.KINDS[name]
    assert [kind.read(sample) for sample in kind.samples]


def test_every_reader_of_a_text_is_fuzzed() -> None:
    """A reader of an option is called ``parse_...`` or ``..._of``, and takes a ``text``."""
    files = [
        file
        for top in ("app", "loadtest", "policies", "sim", "workloads")
        for file in (ROOT / top).rglob("*.py")
    ]
    found = {a or b for file in files for a, b in _READS_TEXT.findall(file.read_text())}
    assert (found - _INSIDE) | {"arrivals"} == set(option_texts.TEXTS), "arrivals: a class"
