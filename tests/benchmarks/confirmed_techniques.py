"""Keep the figures of a run folder of ``verify --technique`` for the evidence of the documentation.

    python -m tests.benchmarks.confirmed_techniques FOLDER

A technique that the folder has replaces the one of that name in docs/evidence/confirmed.json.
"""

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from servetwin.app.verdict.effects.sides import METRICS
from tests.support.paths import ROOT

KEPT = ROOT / "docs/evidence/confirmed.json"


def main(folders: list[str]) -> None:
    """Add the techniques of the folders to the kept figures."""
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    for folder in folders:
        for path in sorted(Path(folder).glob("*/effect.json")):
            record = json.loads(path.read_text())
            when = datetime.fromtimestamp(path.stat().st_mtime, UTC)
            kept[path.parent.name] = condensed(record, f"{when:%Y-%m-%d}")
    KEPT.write_text(json.dumps(kept, indent=1) + "\n")


def condensed(record: dict[str, Any], date: str) -> dict[str, Any]:
    """Return what the table needs of a verdict."""
    return {
        "technique": record["technique"],
        "date": date,
        "machine": record["machine"].get("processor"),
        "model": record["engine"]["model"],
        "pairs": record["pairs"],
        "outcome": record["outcome"],
        "effects": [
            {
                "metric": effect["metric"],
                "predicted": [effect["predicted"][key] for key in ("value", "low", "high")],
                "measured": [effect["measured"], *effect["measured_interval"]],
                "sign_right": effect["sign_right"],
                "inside": effect["inside"],
                "outcome": effect["outcome"],
            }
            for effect in record["effects"]
            if effect["predicted"] and effect["measured_interval"]
        ],
    }


def lines(kept: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the table, then how many signs and sizes are right."""
    yield "| technique | metric | predicted, % | measured, % | sign | size inside |"
    yield "|---|---|---|---|---|---|"
    effects = []
    for record in kept.values():
        for place, effect in enumerate(record["effects"]):
            effects.append(effect)
            name = f"`{record['technique']}`" if place == 0 else ""
            yield (
                f"| {name} | {METRICS[effect['metric']]} | {change(effect['predicted'])} | "
                f"{change(effect['measured'])} | {word(effect['sign_right'], 'right', 'wrong')} | "
                f"{word(effect['inside'], 'yes', 'no')} |"
            )
    signs = [effect["sign_right"] for effect in effects]
    sizes = [effect["inside"] for effect in effects]
    dates = sorted({record["date"] for record in kept.values()})
    machines = sorted({record["machine"] for record in kept.values()})
    yield ""
    yield (
        f"{len(kept)} techniques, {len(effects)} effects: the sign is right in "
        f"{signs.count(True)}, wrong in {signs.count(False)}, not known in {signs.count(None)}; "
        f"the size is inside in {sizes.count(True)} ({sizes.count(True) / len(sizes):.0%}). "
        f"Measured on {', '.join(machines)}, {' to '.join({dates[0]: 0, dates[-1]: 0})}."
    )


def change(triple: list[float]) -> str:
    """Return a ratio and its interval as changes in per cent."""
    value, low, high = (f"{100 * (ratio - 1):+.0f}" for ratio in triple)
    return f"{value} [{low}, {high}]"


def word(known: bool | None, yes: str, no: str) -> str:
    """Return the word of a finding that may not be known."""
    return "not known" if known is None else yes if known else no


if __name__ == "__main__":
    main(sys.argv[1:])
