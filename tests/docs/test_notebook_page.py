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
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    assert len(code) >= 3
    assert sum(bool(line.strip()) for cell in code for line in cell.splitlines()) <= 30
    assert {out.output_type for out in outputs(notebook)} <= {"execute_result", "display_data"}


def test_the_page_has_the_text_the_code_and_what_it_returned(notebook: Any) -> None:
    page = notebook_page.notebook_page()
    for cell in notebook.cells:
        assert cell.source in page
    assert page.count("<table") == 1
    assert "<style" not in page
    assert 'class="dataframe"' not in page
    assert re.findall(r'<div id="notebook-figure-0" role="img" aria-label="(.*?)"', page) == [
        "p99 TTFT, ms against the request rate."
    ]
    assert not re.search(r'src="(https?:)?//', page)


def test_what_the_text_says_of_the_schedulers_is_what_was_found(notebook: Any) -> None:
    """First tokens come sooner in the median, later at the 99th percentile."""
    (text,) = (
        out.data["text/plain"] for out in outputs(notebook) if "text/html" in out.get("data", {})
    )
    busiest = [float(cell) for cell in text.splitlines()[-1].split()]
    rate, first_p50, shortest_p50, first_p99, shortest_p99 = busiest
    assert rate == 7
    assert shortest_p50 < first_p50
    assert shortest_p99 > first_p99


def test_its_figures_and_the_library_lie_beside_it(notebook: Any) -> None:
    assets = notebook_page.notebook_assets()
    assert "drawFigures" in assets["assets/library-figures.js"]
    assert assets["assets/library-figures.js"].count("P99 TTFT by request rate") == 1
    assert len(assets["assets/plotly.js"]) > 1_000_000
    page = notebook_page.notebook_page()
    assert [f"assets/{name}" for name in re.findall(r'src="../assets/([^"]+)"', page)] == [*assets]


def test_a_cell_that_fails_ends_the_build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.md"
    wrong.write_text("# Wrong\n\n```python\n1 / 0\n```\n")
    monkeypatch.setattr(notebook_page, "_SOURCE", wrong)
    with pytest.raises(Exception, match="ZeroDivisionError"):
        notebook_page.executed.__wrapped__()
