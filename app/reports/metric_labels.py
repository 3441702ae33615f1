"""The metrics in words: label, unit and definition (``sim.records.metrics`` computes them).

The words are in ``app/assets/metrics.yaml``.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from servetwin.app.reports.assets import asset_table
from servetwin.sim.explain.bottleneck import Resource
from servetwin.sim.records.metrics import LATENCIES, SLO, duration_unit


@dataclass(frozen=True, slots=True)
class Metric:
    """A value times ``factor`` is in ``unit``."""

    label: str
    unit: str
    factor: float
    definition: str

    @property
    def title(self) -> str:
        """``TTFT, ms``; without a unit, the label alone."""
        return f"{self.label}, {self.unit}" if self.unit else self.label

    def fitting(self, values: Iterable[float | None]) -> "Metric":
        """Return the metric in the unit in which such ``values`` are shown (``duration_unit``)."""
        if self.unit != "ms":
            return self
        unit, factor = duration_unit(values)
        return replace(self, unit=unit, factor=factor)

    def scaled(self, value: float | None) -> float | None:
        """Return a value in ``unit``; None where it is undefined."""
        return None if value is None else value * self.factor


METRICS = {name: Metric(**words) for name, words in asset_table("metrics.yaml").items()}


RESOURCES: dict[Resource, str] = asset_table("words.yaml")["resources"]
"""What limits a server, in words."""


def slo_words(slo: SLO, sign: str = "") -> str:
    """Return an SLO in words: ``TTFT 500 ms, TPOT 50 ms``; ``sign`` stands before each limit."""
    limits_s = {name: getattr(slo, name) for name in LATENCIES}
    limits = ((METRICS[name].fitting([limit_s]), limit_s) for name, limit_s in limits_s.items())
    return ", ".join(
        f"{metric.label} {sign}{metric.factor * limit_s:g} {metric.unit}"
        for metric, limit_s in limits
        if limit_s is not None
    )
