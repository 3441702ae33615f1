"""The notebook of the documentation: it runs, shows what its text says, and fetches nothing."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jupytext", reason="the notebook is made of a text")
pytest.importorskip("plotly", reason="figures need plotly")

from tests.support.paths import DOCS

sys.path.insert(0, str(DOCS / "_site"))
import notebook_page


@pytest.fixture(scope="module")
def notebook() -> Any:
    return notebook_page.executed()


def outputs(notebook: Any) -> list[Any]:
    return [out for cell in notebook.cells for out in cell.get("outputs", ())]


def test_every_cell_runs_and_none_warns(notebook: Any) -> None:
    assert sum(cell.cell_type == "code" for cell in notebook.cells) >= 6
    assert {out.output_type for out in outputs(notebook)} <= {
        "execute_result",
        "display_data",
        "stream",
    }
    assert not [out for out in outputs(notebook) if out.get("name") == "stderr"]


def test_the_page_has_the_text_the_code_and_what_it_returned(notebook: Any) -> None:
    page = notebook_page.notebook_page()
    for cell in notebook.cells:
        assert cell.source in page
    assert "240 requests, 6.5 per second" in page
    assert page.count("<table") == 4
    assert "<style" not in page
    assert 'class="dataframe"' not in page
    figures = re.findall(r'<div id="notebook-figure-(\d)" role="img" aria-label="Cumul', page)
    assert figures == ["0", "1"]
    assert not re.search(r'src="(https?:)?//', page)


def test_what_the_text_says_of_the_schedulers_is_what_was_found(notebook: Any) -> None:
    """First tokens come sooner on average, later at the 99th percentile."""
    tables = [
        out.data["text/plain"] for out in outputs(notebook) if "text/html" in out.get("data", {})
    ]
    found = {
        row.split()[0]: [float(cell) for cell in row.split()[1:]]
        for row in tables[-1].splitlines()
        if row.startswith("ttft")
    }
    low, high = 3, 4
    assert found["ttft_s.mean"][high] < 0
    assert found["ttft_s.p50"][high] < 0
    assert found["ttft_s.p99"][low] > 0


def test_its_figures_and_the_library_lie_beside_it(notebook: Any) -> None:
    assets = notebook_page.notebook_assets()
    assert "drawFigures" in assets["assets/library-figures.js"]
    assert assets["assets/library-figures.js"].count('"TTFT, ') == 2
    assert len(assets["assets/plotly.js"]) > 1_000_000
    page = notebook_page.notebook_page()
    assert [f"assets/{name}" for name in re.findall(r'src="../assets/([^"]+)"', page)] == [*assets]


def test_a_cell_that_fails_ends_the_build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.md"
    wrong.write_text("# Wrong\n\n```python\n1 / 0\n```\n")
    monkeypatch.setattr(notebook_page, "_SOURCE", wrong)
    with pytest.raises(Exception, match="ZeroDivisionError"):
        notebook_page.executed.__wrapped__()
