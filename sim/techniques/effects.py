"""The effect of a technique: the same requests, simulated with it and without it.

Each replication draws its own requests and its own engine (the efficiencies within their spread);
both sides get the same draws. A change is relative, (with - without) / without, with Student's t
over the replications; below the dead band it counts as none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.experiments.paired_comparison import half_width
from servetwin.sim.experiments.scenario import Scenario, replicate
from servetwin.sim.records.metrics import figure
from servetwin.sim.records.run import Run
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import Experiment, Technique
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.trace import Trace

DEAD_BAND = 0.01
CONFIDENCE = 0.95
REPLICATIONS = 5
# Replications of an effect with a sign that fewer leave unsure.
MOST_REPLICATIONS = 20

# The metrics that are compared, and the direction that is better. TTFT and decode TPS of a request
# ``alone`` on the server and ``loaded``; ``ttft_from_admission`` is the loaded one without the time
# in the queue; output throughput when saturated; ``memory``: the weights and the most KV that is
# held for requests alone.
METRICS = {
    "ttft_alone": "lower",
    "ttft_loaded": "lower",
    "ttft_from_admission": "lower",
    "tps_alone": "higher",
    "tps_loaded": "higher",
    "throughput": "higher",
    "memory": "lower",
}

Figures = dict[str, float | None]
Sign = Literal["+", "-", "0", "?", ""]


@dataclass(frozen=True, slots=True)
class Change:
    """A relative change of one metric, with the interval of its mean; None: undefined."""

    metric: str
    change: float | None
    low: float | None
    high: float | None

    @property
    def sign(self) -> Sign:
        """``+`` better, ``-`` worse, ``0`` in the dead band, ``?`` unsure, empty: undefined."""
        if self.change is None or self.low is None or self.high is None:
            return ""
        if abs(self.change) < DEAD_BAND:
            return "0"
        if self.low <= 0 <= self.high:
            return "?"
        return "+" if (self.change > 0) == (METRICS[self.metric] == "higher") else "-"


@dataclass(frozen=True, slots=True)
class Effect:
    """All changes of one technique; ``refused`` says why it makes no sense here.

    ``models`` are those without it and with it, where they differ.
    """

    technique: Technique
    experiment: Experiment
    changes: tuple[Change, ...] = ()
    refused: str | None = None
    models: tuple[ModelShape, ...] = ()
    replications: int = 0

    def of(self, metric: str) -> Change:
        """Return the change of one of ``METRICS``."""
        return next(change for change in self.changes if change.metric == metric)


class Laboratory:
    """Runs setups; one that several techniques are compared with runs once.

    Where a sign is unsure after ``replications``, their number is doubled, to ``most`` of them.
    """

    def __init__(
        self, seed: int = 0, replications: int = REPLICATIONS, most: int | None = None
    ) -> None:
        self._least, self._most = replications, most or replications
        self._seeds = np.random.SeedSequence(seed).spawn(self._most)
        self._known: dict[str, list[Figures]] = {}

    def effect(self, technique: Technique, base: Setup, experiment: Experiment) -> Effect:
        """Return the changes that ``technique`` makes of ``base``."""
        try:
            without, with_it = technique.sides(base)
            changes = self._changes(without, with_it, experiment, count := self._least)
            while any(change.sign == "?" for change in changes) and count < self._most:
                count = min(2 * count, self._most)
                changes = self._changes(without, with_it, experiment, count)
        except PolicyError as error:
            return Effect(technique, experiment, refused=str(error))
        models = without.deployment.model, with_it.deployment.model
        sizes = {(model.params(), model.active_params()) for model in models}
        differing = models if len(sizes) > 1 else ()
        return Effect(technique, experiment, changes, models=differing, replications=count)

    def _changes(
        self, without: Setup, with_it: Setup, experiment: Experiment, count: int
    ) -> tuple[Change, ...]:
        a = self._figures(without, experiment, [None] * count)
        b = self._figures(with_it, experiment, [figures["sustained_per_s"] for figures in a])
        return tuple(_change(metric, a, b) for metric in METRICS)

    def _figures(
        self, setup: Setup, experiment: Experiment, rates: Sequence[float | None]
    ) -> list[Figures]:
        """Return a replication for each rate; one that is known does not run again."""
        known = self._known.setdefault(repr((setup, experiment, rates[0])), [])
        for place in range(len(known), len(rates)):
            known.append(measure(setup, experiment, self._seeds[place], rates[place]))
        return known[: len(rates)]


def measure(
    setup: Setup,
    experiment: Experiment,
    seed: np.random.SeedSequence,
    sustained_per_s: float | None,
) -> Figures:
    """Return ``METRICS`` of one setup under the three loads of an experiment.

    ``sustained_per_s`` is what the load is a share of; None: what this setup sustains when
    saturated, which is returned as ``sustained_per_s``.
    """
    scenario = setup.scenario()
    trace_seed = int(seed.generate_state(1)[0])

    def run(trace: Trace) -> Run:
        return replicate(trace, scenario, seed, draw=True)

    saturated = run(experiment.all_at_once(trace_seed)).summary()
    rate = sustained_per_s or saturated["request_throughput_per_s"]
    run_alone = run(experiment.one_at_a_time(trace_seed))
    run_loaded = run(experiment.steady(trace_seed, rate))
    alone, loaded = run_alone.summary(), run_loaded.summary()
    kv_bytes = _most_kv_bytes(run_alone, scenario) if setup.deployment.kv_cache else 0.0
    return {
        "ttft_alone": figure(alone, "ttft_s.mean"),
        "ttft_loaded": figure(loaded, "ttft_s.mean"),
        "ttft_from_admission": _from_admission_s(run_loaded),
        "tps_alone": figure(alone, "decode_tps.mean"),
        "tps_loaded": figure(loaded, "decode_tps.mean"),
        "throughput": figure(saturated, "output_throughput_tokens_per_s"),
        "memory": setup.deployment.resident_weight_bytes() + kv_bytes,
        "sustained_per_s": rate,
    }


def compare(metric: str, without: Sequence[float], with_it: Sequence[float]) -> Change:
    """Return the mean relative change over pairs, with its interval."""
    changes = np.asarray(with_it) / np.asarray(without) - 1
    mean = float(changes.mean())
    if len(changes) < 2:
        return Change(metric, mean, None, None)
    half = half_width(changes, CONFIDENCE)
    return Change(metric, mean, mean - half, mean + half)


def _change(metric: str, a: Sequence[Figures], b: Sequence[Figures]) -> Change:
    both = ((p[metric], q[metric]) for p, q in zip(a, b, strict=True))
    pairs = [(x, y) for x, y in both if x and y]
    if not pairs:
        return Change(metric, None, None, None)
    return compare(metric, [x for x, _ in pairs], [y for _, y in pairs])


def _from_admission_s(run: Run) -> float | None:
    finished = run.requests[run.requests["status"] == "finished"]
    waited = finished["ttft_s"] - finished["queue_s"]
    return float(waited.mean()) if len(waited) else None


def _most_kv_bytes(run: Run, scenario: Scenario) -> float:
    held = scenario.policies.kv_tokens - run.steps["free_kv_tokens"].min()
    return float(held) * scenario.profile.kv_bytes_per_token()
