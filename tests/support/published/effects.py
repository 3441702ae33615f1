"""The effect table of the notes: five techniques, and the signs of four metrics."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from servetwin.sim.techniques.effects import Effect, Laboratory
from servetwin.sim.techniques.registry import Toggles, find_technique
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import Experiment, Technique

Aspect = Literal["first token", "TPS", "throughput", "quality"]
Condition = Literal["alone", "under load", "from admission", "saturated"]

MEASURED: dict[Aspect, dict[Condition, str]] = {
    "first token": {
        "alone": "ttft_alone",
        "under load": "ttft_loaded",
        "from admission": "ttft_from_admission",
    },
    "TPS": {"alone": "tps_alone", "under load": "tps_loaded"},
    "throughput": {"saturated": "throughput"},
    "quality": {},
}
"""What the simulation compares for each column of the notes."""


class ParallelAndSplit(Technique):
    """Tensor parallelism for the first token, split keys for the others: one row of the notes."""

    name = "tensor-parallel and flash-decoding"
    family = "parallel"
    kind = "system"
    lossless = True
    formula = "those of both"
    source = "the notes' row names both"

    def apply(self, setup: Setup) -> Setup:
        """Return the setup with both techniques on."""
        return Toggles.of(("tensor-parallel", "flash-decoding")).over(setup)

    def off(self, setup: Setup) -> Setup:
        """Return the setup with keys that are not split, on as many devices as it has."""
        return find_technique("flash-decoding").off(setup)


@dataclass(frozen=True, slots=True)
class PublishedEffect:
    """A row of the notes: their ``signs`` in the order of ``MEASURED``.

    ``shown_by`` names our technique; ``why`` has, for a column in which some sign differs, a key of
    ``ERRORS`` or the reason.
    """

    row: str
    shown_by: str
    signs: tuple[str, str, str, str]
    why: Mapping[Aspect, str] = field(default_factory=dict)

    def technique(self) -> Technique:
        """Return the technique that stands for the row."""
        if self.shown_by == ParallelAndSplit.name:
            return ParallelAndSplit()
        return find_technique(self.shown_by)


EFFECTS = (
    PublishedEffect("quantisation / low precision", "smooth-quant", ("+", "+", "+", "-")),
    PublishedEffect(
        "quantisation of the weights alone",
        "weight-int8",
        ("+", "+", "+", "-"),
        {"first token": "E12", "quality": "perplexity shows no cost of 8 bits of weights alone"},
    ),
    PublishedEffect("parallel / FlashDecoding", ParallelAndSplit.name, ("+", "+", "+", "0")),
    PublishedEffect(
        "FlashDecoding without the other",
        "flash-decoding",
        ("+", "+", "+", "0"),
        {
            "first token": "E13",
            "throughput": "a batch fills the device without splitting: few sequences gain",
        },
    ),
    PublishedEffect(
        "KV cache",
        "kv-cache",
        ("0", "+", "+", "0"),
        {"first token": "the pass is the same; under load its queue is shorter"},
    ),
    PublishedEffect("PagedAttention", "paged-attention", ("0", "0", "+", "0")),
    PublishedEffect(
        "continuous batching",
        "continuous-batching",
        ("-", "-", "+", "0"),
        {"first token": "E11", "TPS": "a request alone shares no step with others"},
    ),
)


def measured_effects(
    base: Setup, experiment: Experiment, replications: int, seed: int
) -> Iterator[tuple[PublishedEffect, Effect]]:
    """Yield every row with what its technique does here, under its own load or ``experiment``."""
    laboratory = Laboratory(seed, replications)
    for published in EFFECTS:
        technique = published.technique()
        yield published, laboratory.effect(technique, base, technique.experiment or experiment)
