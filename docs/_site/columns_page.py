"""The reference of the files of a run folder, column by column."""

from collections.abc import Mapping

from markdown_table import table

from servetwin.app.scenario.setting_docs import attribute_docs
from servetwin.loadtest.report.records import EXTRA_MEANINGS
from servetwin.loadtest.report.server_metrics import SERVER_MEANINGS
from servetwin.policies.protocols import KVUsage
from servetwin.sim.core.recorder import STEP_MEANINGS
from servetwin.sim.records.metrics import MEANINGS, REQUEST_MEANINGS
from servetwin.sim.records.run import HANDOVER_MEANINGS, PAUSE_MEANINGS

SECTIONS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "requests.parquet": (
        "One row per request, of a simulation or a load test. Stamps are of one clock; in a "
        "simulation it begins with the trace.",
        REQUEST_MEANINGS,
    ),
    "requests.parquet of a load test": ("Further columns.", EXTRA_MEANINGS),
    "requests.parquet with tasks": (
        "Further columns where requests wait for others: [tasks](../workloads.md#tasks-of-agents).",
        MEANINGS["tasks"],
    ),
    "steps.parquet": ("One row per run of equal steps, of a simulation.", STEP_MEANINGS),
    "steps.parquet with --kv-usage": (
        "Further columns: where the KV memory is when the row begins.",
        attribute_docs(KVUsage),
    ),
    "pauses.parquet": ("One row per preemption, where there were any.", PAUSE_MEANINGS),
    "handovers.parquet": (
        "One row per prompt whose keys and values moved to another server.",
        HANDOVER_MEANINGS,
    ),
    "server_metrics.parquet": (
        "One row per reading of the server's own metrics during a load test.",
        SERVER_MEANINGS,
    ),
}
_UNITS = {"_s": "s", "_tokens": "tokens"}
_INTRODUCTION = """# Columns

The tables in a run folder, as `replay --out` and `loadtest --out` write them. The other files are
`scenario.yaml` ([scenario](scenario.md)), `summary.json` ([metrics](metrics.md)) and `meta.json`
(when, where and with which versions it ran). `servetwin explain` and `report` read all of them.
"""


def columns_page() -> str:
    """Return the page as Markdown."""
    return "\n".join([_INTRODUCTION, *(_section(title, *of) for title, of in SECTIONS.items())])


def _section(title: str, about: str, meanings: Mapping[str, str]) -> str:
    rows = [(f"`{name}`", _unit(name), meaning) for name, meaning in meanings.items()]
    return f"## {title}\n\n{about}\n\n{table(('column', 'unit', 'meaning'), rows)}"


def _unit(name: str) -> str:
    return next((unit for suffix, unit in _UNITS.items() if name.endswith(suffix)), "")
