"""The glossary of metrics."""

from markdown_table import table

from servetwin.app.words import METRICS
from servetwin.sim.records.metrics import MEANINGS, PERCENTILES

_PERCENTILES = ", ".join(f"`p{q}`" for q in PERCENTILES)
_INTRODUCTION = f"""# Metrics

Defined once, in `sim/records/metrics.py`, for simulator, load tester, reports and dashboard alike.
The key is that of `summary.json`, in seconds where its name ends in `_s`; tables and charts show
the unit. Latencies have `count`, `mean`, {_PERCENTILES} and `max`, over the finished requests;
percentiles are numpy's linear estimator.

"""
_STEADY = """
## The steady part

`steady` has figures of the requests between filling and draining
([how it is found](../simulation-practice.md#the-steady-part)), under the same keys:

"""


def metrics_page() -> str:
    """Return the page as Markdown."""
    rows = [(f"`{key}`", m.label, m.unit, m.definition) for key, m in METRICS.items()]
    steady = [(f"`{key}`", meaning) for key, meaning in MEANINGS["steady"].items()]
    glossary = table(("key", "metric", "shown in", "definition"), rows)
    return _INTRODUCTION + glossary + _STEADY + table(("key of `steady`", "meaning"), steady)
