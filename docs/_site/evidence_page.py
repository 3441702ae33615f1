"""The appendix of evidence: every figure that was measured or computed, with date and command.

The figures are data: ``docs/evidence/*.yml`` has a table per entry, its rows as lines of cells.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from markdown_table import table

from servetwin.app.dashboard.trust.real_gpus import real_gpus
from servetwin.sim.techniques.quality import published_quality
from tests.benchmarks import confirmed_techniques
from tests.benchmarks.real_gpus import markdown

FOLDER = Path(__file__).parents[1] / "evidence"
SECTIONS = ("predictions", "black-box", "gpus", "speed", "effects", "computed", "claims")
"""Files of the folder, in the order of the page."""
MADE: Mapping[str, Callable[[], str]] = {
    "confirmed_techniques": lambda: "\n".join(
        confirmed_techniques.lines(json.loads(confirmed_techniques.KEPT.read_text()))
    ),
    "real_gpus": lambda: markdown(real_gpus()),
}
"""Tables that another module makes of its own data."""
_INTRODUCTION = """# Evidence

Every measured figure of the documentation, with its date, machine and command. Measure yours:

```bash
servetwin verify --trace trace.jsonl --out runs/mine
servetwin report runs/mine
```

A figure has one of four grades: *measured here*, *measured by others*, *kernel tables*, *computed
from data sheets*. The tables are data (`docs/evidence/`); where no machine is named, a figure is
computed or its source is.
"""


def evidence_page() -> str:
    """Return the page as Markdown."""
    parts = [_INTRODUCTION]
    for name in SECTIONS:
        section = load(name)
        parts += [f"## {section['title']}", *map(_table, section["tables"])]
    return "\n\n".join(part.rstrip("\n") for part in [*parts, _quality()]) + "\n"


def load(name: str) -> dict[str, Any]:
    """Return a file of the folder."""
    section: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yml").read_text())
    return section


def tables() -> Iterator[dict[str, Any]]:
    """Yield the entries of all files."""
    for name in SECTIONS:
        yield from load(name)["tables"]


def cells(entry: Mapping[str, Any]) -> list[list[str]]:
    """Return the heads of a table, then its rows."""
    return [[cell.strip() for cell in line.split(" | ")] for line in entry["rows"].splitlines()]


def _table(entry: Mapping[str, Any]) -> str:
    facts = [str(entry[key]) for key in ("date", "machine", "source") if key in entry]
    if "command" in entry:
        facts.append(f"`{entry['command']}`")
    about = " ".join([f"{'; '.join(facts)}."] * bool(facts) + [entry.get("note", "")]).strip()
    if "made_by" in entry:
        shown = MADE[entry["made_by"]]()
    else:
        heads, *rows = cells(entry)
        shown = table(heads, rows)
    anchor = f"### {entry['title']} {{#{entry['name']}}}"
    return "\n\n".join(part for part in (anchor, about, shown) if part)


def _quality() -> str:
    """Return the published quality of techniques; the simulator computes none."""
    published = published_quality()
    rows = [
        (f"`{series.technique}`", model, series.metric, f"{before:g}", f"{after:g}",
         series.task, series.method, str(published.sources[series.source]))
        for series in published.series
        for model, (before, after) in series.models.items()
    ]  # fmt: skip
    heads = ("technique", "model", "metric", "without", "with", "task", "method", "source")
    return f"## Quality of techniques, published {{#quality}}\n\n{table(heads, rows)}"
