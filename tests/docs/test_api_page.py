"""The page of the Python API has every public name once, with its text."""

import re
from pathlib import Path

import pytest
from api_page import GROUPS, api_page, place

import servetwin
from tests.support.paths import ROOT

SHOWN = [name for names in GROUPS.values() for name in names]


def test_every_public_name_has_one_entry() -> None:
    assert sorted(SHOWN) == servetwin.__all__
    assert len(SHOWN) <= 27


def test_the_lines_of_the_page_import_its_names() -> None:
    pytest.importorskip("torch")
    found = dict[str, object]()
    for block in re.findall(r"^```python\n(.*?)^```$", api_page(), re.DOTALL | re.M):
        assert max(map(len, block.splitlines())) <= 76
        exec(block, found)
    assert found.keys() - {"__builtins__"} == set(SHOWN)


@pytest.mark.slow
def test_the_page_has_the_text_of_each_name(site: Path) -> None:
    html = (site / "reference" / "python-api.html").read_text()
    entries = re.split(r'<div class="doc doc-object doc-\w+">', html)
    for name in SHOWN:
        entry = next(text for text in entries if f'id="{place(name)}"' in text)
        assert re.search(r'class="doc doc-contents[^"]*">\s*<p>[\w<]', entry), name
    assert 'id="servetwin.policies.protocols.Scheduler.schedule"' in html
    assert re.findall(r'id="(?:\w+\.)+_[a-z]\w*"', html) == []


def test_types_see_what_is_imported() -> None:
    source = (ROOT / "servetwin" / "__init__.py").read_text()
    typed = re.findall(r"^    from servetwin\.([\w.]+) import (\w+) as (\w+)$", source, re.M)
    places = {name: f"{module}:{attribute}" for module, attribute, name in typed}
    places["load_trace"] = "workloads.reading:read_trace"
    assert places == servetwin._PLACES
