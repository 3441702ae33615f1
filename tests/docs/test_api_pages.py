"""Every public name of the library has an entry on the API pages."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from api_pages import API_PAGES

from tests.support.paths import ROOT

PACKAGES = ("sim", "policies", "workloads", "loadtest")
SHOWN = [name for page in API_PAGES.values() for name in page.names()]


def public_names(path: Path) -> Iterator[str]:
    """The names of ``__all__``, or those that the ``__init__`` of a package hands on."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            yield from ast.literal_eval(node.value)
        elif isinstance(node, ast.ImportFrom) and path.name == "__init__.py":
            yield from (alias.name for alias in node.names if alias.asname == alias.name)


PUBLIC = [
    (".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"), name)
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
    for name in public_names(path)
]


def test_public_names_have_an_entry() -> None:
    assert len(PUBLIC) > 100
    assert [f"{module}.{name}" for module, name in PUBLIC if f"{module}.{name}" not in SHOWN] == []


def test_a_name_has_one_entry() -> None:
    assert sorted(set(SHOWN)) == sorted(SHOWN)


@pytest.mark.parametrize("page", API_PAGES)
def test_what_a_page_imports_are_its_names(page: str) -> None:
    """The lines above the entries run, and give what the entries explain."""
    found = dict[str, object]()
    blocks = re.findall(r"^```python\n(.*?)^```$", API_PAGES[page].markdown(), re.DOTALL | re.M)
    assert len(blocks) == len(API_PAGES[page].groups)
    for block in blocks:
        assert max(map(len, block.splitlines())) <= 76
        exec(block, found)
    names = {name.rpartition(".")[2] for name in API_PAGES[page].names()}
    assert found.keys() - {"__builtins__"} == names
    assert not any(name.startswith("_") for name in names)


@pytest.mark.parametrize("page", API_PAGES)
def test_the_page_has_the_text_of_each_name(page: str, site: Path) -> None:
    html = (site / "reference" / "api" / f"{page}.html").read_text()
    entries = re.split(r'<div class="doc doc-object doc-\w+">', html)
    for name in API_PAGES[page].names():
        entry = next(text for text in entries if f'id="{name}"' in text)
        documented = re.search(r'class="doc doc-contents[^"]*">\s*<p>[\w<]', entry)
        assert documented, name


def test_the_pages_show_methods_and_types_but_nothing_private(site: Path) -> None:
    html = (site / "reference" / "api" / "policies.html").read_text()
    assert 'id="policies.Scheduler.schedule"' in html
    assert 'href="#policies.Batch"' in html
    for page in API_PAGES:
        text = (site / "reference" / "api" / f"{page}.html").read_text()
        assert re.findall(r'id="(?:\w+\.)+_[a-z]\w*"', text) == []
