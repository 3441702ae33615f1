"""A page that is a notebook: its cells are run, and what they return stands below them."""

import json
import os
import re
import tempfile
from collections.abc import Iterator
from functools import cache
from html import escape
from itertools import count
from pathlib import Path
from typing import Any

import jupytext  # type: ignore[import-untyped]
from nbclient import NotebookClient
from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

from servetwin.app.figures.canvas import DARK, LIGHT

PAGE = "guides/library.md"
_SOURCE = Path(__file__).parents[1] / PAGE
_FIGURE = "application/vnd.plotly.v1+json"
_TIMEOUT_S = 120
_QUIET = ["--IPKernelApp.log_level=40"]
_LIBRARY, _FIGURES = "assets/plotly.js", "assets/library-figures.js"
_DRAW = (Path(__file__).parent / "notebook.js").read_text()
_SCRIPTS = "\n\n" + "\n".join(f'<script src="../{path}"></script>' for path in (_LIBRARY, _FIGURES))


@cache
def executed() -> Any:
    """Return the notebook with what its cells returned; raises where one fails."""
    notebook = jupytext.reads(_SOURCE.read_text(), fmt="md")
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            timeout=_TIMEOUT_S,
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
            extra_arguments=_QUIET,
        )
        return client.execute(env={**os.environ, "PLOTLY_RENDERER": "plotly_mimetype"})


def notebook_page() -> str:
    """Return the page in Markdown."""
    cells = executed().cells
    numbers = count()
    return "\n\n".join(part for cell in cells for part in _parts(cell, numbers)) + _SCRIPTS


def notebook_assets() -> dict[str, str]:
    """Return the files that the page needs beside it, by their paths in the site."""
    drawn = [
        output.data[_FIGURE] for cell in executed().cells for output in cell.get("outputs", ())
        if _FIGURE in output.get("data", {})
    ]  # fmt: skip
    themes = {"default": LIGHT.to_plotly_json(), "slate": DARK.to_plotly_json()}
    data = f"const themes = {json.dumps(themes)};\nconst figures = {json.dumps(drawn)};\n"
    return {_LIBRARY: get_plotlyjs(), _FIGURES: data + _DRAW}


def _parts(cell: Any, numbers: Iterator[int]) -> list[str]:
    """Return a cell, and its outputs below it, as Markdown."""
    if cell.cell_type != "code":
        return [cell.source]
    return [f"```python\n{cell.source}\n```", *(_shown(out, numbers) for out in cell.outputs)]


def _shown(output: Any, numbers: Iterator[int]) -> str:
    if output.output_type == "stream":
        return f"```text\n{output.text.rstrip()}\n```"
    data = output.data
    if _FIGURE in data:
        alt = escape(data[_FIGURE]["layout"]["meta"]["alt"])
        name = f"notebook-figure-{next(numbers)}"
        return f'<div id="{name}" role="img" aria-label="{alt}"></div>'
    if "text/html" in data:
        return _plain_table(data["text/html"])
    return f"```text\n{data['text/plain']}\n```"


def _plain_table(html: str) -> str:
    """Return a frame's table with the looks of the other tables of the site."""
    table = re.sub(r"<style.*?</style>", "", html, flags=re.DOTALL)
    table = re.sub(r' border="1" class="dataframe"| style="[^"]*"', "", table)
    return "\n".join(line for line in table.splitlines() if line.strip())
