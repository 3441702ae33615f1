"""The metrics in words: label, unit and definition (``sim.records.metrics`` computes them).

The words are in ``app/assets/metrics.yaml``.
"""

from dataclasses import dataclass

from app.text.assets import asset_table


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

    def scaled(self, value: float | None) -> float | None:
        """Return a value in ``unit``; None where it is undefined."""
        return None if value is None else value * self.factor


METRICS = {name: Metric(**words) for name, words in asset_table("metrics.yaml").items()}
