"""Competing hypotheses: which setting of a server, if stated wrongly, explains its latencies.

Each setting is tried over its whole range, all others as stated. Simulations of what was sent give
residuals: the logarithms of simulated / measured TTFT and TPOT of each request, and of stated /
measured seconds of each logged step. Their likelihood is that of a Laplace distribution of unknown
width, so that outliers do not rule.

Neighbouring requests share a queue and a moment of the machine, and no model is quite right, so
likelihoods alone are far too sure. The share of a hypothesis is therefore its mean posterior over
samples of blocks of requests, drawn with replacement: a bagged posterior (Huggins and Miller,
"Reproducible model selection using bagged posteriors", Bayesian Analysis 18, 2023).

The speed of a machine wanders by some per cent: where a hypothesis leaves the step times as stated,
all steps may be ``SPEEDS`` times as long, so only more than that is an error of the step times.
Where stamps tell the speed over the run (``machine_pace``), simulations have it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from servetwin.app.verdict.two_claims import StepsInBeats
from servetwin.app.verdict.why.settings import Server, Setting, Value
from servetwin.policies.build import build_scheduler
from servetwin.policies.step_record import StepRecord
from servetwin.sim.experiments.measured_parts import Pace
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.profile import Profile
from servetwin.workloads.errors import PolicyError

LATENCIES = ("ttft_s", "tpot_s")
SPEEDS = (0.95, 0.975, 1.0, 1.025, 1.05)
AS_STATED = "as stated"
# Logarithm of the odds of "as stated" before anything was measured: settings are mostly right, and
# the best of many values explains chance too.
_ODDS = 10.0
_SEARCH_SEEDS, _SEEDS = range(2), range(4)
_REFINEMENTS = 2
_FINALISTS = 5
_BLOCKS, _SAMPLES = 10, 200
# The mean residual below which a simulation is as good as exact, and the largest that counts.
_LEAST, _MOST = 0.01, 2.0
_UNLIKELY, _TIED = 0.05, 0.1

_AS_STATED = (1.0, 1.0)

Floats = npt.NDArray[np.float64]
# Absolute residuals: of requests by latency, of steps, of the KV memory; NaN where nothing was
# measured.
Losses = Sequence[Floats]


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A setting with the value that explains the measurements best, its interval and its share.

    The interval is of 90 %. ``share`` is of all hypotheses; ``misses`` has the median relative
    error of the latencies of single requests that is left, by name.
    """

    name: str
    share: float
    misses: Mapping[str, float]
    stated: Value | None = None
    estimate: Value | None = None
    low: Value | None = None
    high: Value | None = None

    @property
    def in_words(self) -> str:
        """The estimate and what was stated: ``48 (44 to 56), not 256``."""
        return f"{self.shown(self.estimate)}{self.interval}, not {self.shown(self.stated)}"

    @property
    def interval(self) -> str:
        """The interval, in brackets; empty where the estimate is a name."""
        if self.low == self.high:
            return ""
        return f" ({self.shown(self.low)} to {self.shown(self.high)})"

    @staticmethod
    def shown(value: Value | None) -> str:
        """Return a value as people write it."""
        if isinstance(value, bool):
            return "on" if value else "off"
        return f"{value:.3g}" if isinstance(value, float) else str(value)


def tied(ranking: Sequence[Hypothesis]) -> list[Hypothesis]:
    """Return the hypotheses that explain clearly more than the stated settings, best first.

    None where the stated settings may be right; more than one where these cannot be told apart.
    """
    if not ranking or any(h.name == AS_STATED and h.share >= _UNLIKELY for h in ranking):
        return []
    return [one for one in ranking if one.share >= _TIED * ranking[0].share]


def machine_pace(run: Run, scenario: Scenario) -> Pace | None:
    """Return the speed of the machine over a run, by the stamps of its tokens; None without.

    It is what steps with and without prompts share: the drift of those without, at the level of the
    kind whose steps are nearest to the stated ones. The rest of the other kind is its own error.
    """
    if not isinstance(scenario.profile, Profile) or "chunk_s" not in run.requests:
        return None
    profile = scenario.profile.with_policies(scenario.policies)
    fit = profile.step_time(build_scheduler(scenario.policies).memory.layout)
    steps = StepsInBeats.of_runs([replace(run, records=[])], profile, fit)
    if steps.doubts() or not (steps.frame["kind"] == "decode").any():
        return None
    sums = steps.frame.groupby(steps.frame["kind"] == "decode")[["took_s", "stated_s"]].sum()
    levels = np.log(sums["took_s"] / sums["stated_s"])
    shared = max(0.0, levels.min()) + min(0.0, levels.max())
    (pace,) = steps.paces(fit, 1)
    paces = (np.array(pace.paces[False]) * np.exp(shared - levels[True])).tolist()
    moments_s = pace.moments_s[False]
    return Pace(dict.fromkeys((False, True), moments_s), dict.fromkeys((False, True), paces))


def stated_steps(run: Run, steps: Sequence[StepRecord], scenario: Scenario) -> pd.DataFrame:
    """Return ``log_ratio``, of stated / measured seconds, and ``has_prompts`` of logged steps.

    Where the log has reference beats, what is stated is at the speed that the machine had.
    """
    profile = scenario.profile
    assert isinstance(profile, Profile)
    fit = profile.step_time(build_scheduler(scenario.policies).memory.layout)
    timed = StepsInBeats.of_runs([replace(run, records=[*steps])], profile, fit).frame
    logs = np.log((timed["stated_s"] / timed["took_s"]).where(timed["took_s"] > 0))
    return pd.DataFrame({"log_ratio": logs, "has_prompts": timed["kind"] != "decode"})


@dataclass
class Evidence:
    """What was measured, and how far simulated servers are from it.

    ``simulate`` returns the latencies of a server by request id, with the noise of a seed;
    ``steps`` are those of ``stated_steps``: with them the steps of a simulation are measured ones.
    ``kv_tokens`` are sizes of the KV memory that the server's metrics tell.
    """

    measured: pd.DataFrame
    simulate: Callable[[Server, int], pd.DataFrame]
    steps: pd.DataFrame | None = None
    kv_tokens: Floats = field(default_factory=lambda: np.empty(0))
    _known: dict[tuple[object, ...], Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng, sizes = np.random.default_rng(0), [len(self.measured)]
        if self.steps is not None:
            sizes.append(len(self.steps))
        if len(self.kv_tokens):
            sizes.append(len(self.kv_tokens))
        self._samples = [_block_samples(size, rng) for size in sizes]
        self._whole = [np.ones((1, size)) for size in sizes]

    def losses(self, server: Server, seeds: Iterable[int]) -> Losses:
        """Return the absolute residuals of a server, by the mean of its simulations."""
        sizes = np.log(self.kv_tokens / server.policies.kv_tokens)
        memory = [np.abs(sizes)[:, None]] if len(sizes) else []
        if self.steps is None:
            return [self._of_requests(server, seeds), *memory]
        kinds = self.steps["has_prompts"].astype(int)
        away = self.steps["log_ratio"] + np.log(server.scale)[kinds]
        if server.scale == _AS_STATED:
            away -= away.groupby(kinds).transform("median").clip(*np.log([SPEEDS[0], SPEEDS[-1]]))
        requests = self._of_requests(replace(server, scale=_AS_STATED), seeds)
        return [requests, away.abs().to_numpy()[:, None], *memory]

    def _of_requests(self, server: Server, seeds: Iterable[int]) -> Floats:
        measured = np.log(self.measured[[*LATENCIES]].to_numpy(float))
        logs = np.mean([self._logs(server, seed) for seed in seeds], axis=0)
        losses = np.nan_to_num(np.abs(logs - measured), nan=_MOST).clip(max=_MOST)
        return np.asarray(np.where(np.isnan(measured), np.nan, losses))

    def _logs(self, server: Server, seed: int) -> Floats:
        if (server, seed) not in self._known:
            rows = self.simulate(server, seed).loc[self.measured.index, [*LATENCIES]]
            self._known[server, seed] = np.log(rows.to_numpy(float))
        return self._known[server, seed]

    def best(self, server: Server, seeds: Iterable[int]) -> Losses:
        """Return the losses of a server at its likeliest speed."""
        scales = [(speed, speed) for speed in SPEEDS]
        if self.steps is not None or server.scale != _AS_STATED:
            scales = [server.scale]
        losses = (self.losses(replace(server, scale=scale), seeds) for scale in scales)
        return max(losses, key=self.likelihood)

    def likelihood(self, losses: Losses) -> float:
        """Return the logarithm of the likelihood of all that was measured."""
        return float(_likelihoods(losses, self._whole)[0])

    def likelihoods(self, losses: Losses) -> Floats:
        """Return ``likelihood`` of each sample of blocks."""
        return _likelihoods(losses, self._samples)


def _block_samples(size: int, rng: np.random.Generator) -> Floats:
    """Return how often each of ``size`` neighbours is in each sample of blocks."""
    blocks = min(_BLOCKS, size)
    counts = rng.multinomial(blocks, np.full(blocks, 1 / blocks), _SAMPLES)
    return counts[:, np.arange(size) * blocks // size].astype(np.float64)


def _likelihoods(losses: Losses, samples: Sequence[Floats]) -> Floats:
    """Return the log likelihoods of samples, each with the width that suits it best."""
    total = 0.0
    for rows, weights in zip(losses, samples, strict=True):
        counts = weights @ ~np.isnan(rows)
        means = weights @ np.nan_to_num(rows) / np.maximum(counts, 1.0)
        total = total - (counts * np.log(np.maximum(means, _LEAST))).sum(axis=1)
    return np.asarray(total)


def rank(evidence: Evidence, stated: Server, settings: Iterable[Setting]) -> list[Hypothesis]:
    """Fit every setting alone; return the likeliest hypotheses, best first."""
    fits = [fit for setting in settings if (fit := _Fit.of(evidence, setting))]
    fits = sorted(fits, key=lambda fit: -evidence.likelihood(fit.tried[fit.best]))[:_FINALISTS]
    servers = [stated, *(fit.setting.change(fit.best) for fit in fits)]
    finals = [evidence.best(server, _SEEDS) for server in servers]
    logs = np.array([evidence.likelihoods(losses) for losses in finals])
    logs[0] += _ODDS
    weights = np.exp(logs - logs.max(axis=0))
    shares = (weights / weights.sum(axis=0)).mean(axis=1).tolist()
    missed = [
        dict(zip(LATENCIES, np.expm1(np.nanmedian(losses[0], axis=0)).tolist(), strict=True))
        for losses in finals
    ]
    ranking = [Hypothesis(AS_STATED, shares[0], missed[0])]
    for fit, share, misses in zip(fits, shares[1:], missed[1:], strict=True):
        low, high = fit.interval(evidence)
        name, value = fit.setting.name, fit.setting.stated
        ranking.append(Hypothesis(name, share, misses, value, fit.best, low, high))
    return sorted(ranking, key=lambda one: -one.share)


@dataclass(frozen=True, slots=True)
class _Fit:
    """The losses of the values of a setting that were tried, and the likeliest value."""

    setting: Setting
    tried: Mapping[Value, Losses]
    best: Value

    @classmethod
    def of(cls, evidence: Evidence, setting: Setting) -> Self | None:
        """Try the values of a setting, then values between the best; None without any."""
        tried: dict[Value, Losses] = {}
        best, values = setting.stated, setting.values
        for _ in range(1 + _REFINEMENTS):
            for value in values:
                if setting.differs(value) and value not in tried:
                    with suppress(PolicyError):  # settings that do not go together
                        tried[value] = evidence.losses(setting.change(value), _SEARCH_SEEDS)
            if not tried:
                return None
            best = max(tried, key=lambda value: evidence.likelihood(tried[value]))
            values = setting.between([*tried], best)
        return cls(setting, tried, best)

    def interval(self, evidence: Evidence) -> tuple[Value, Value]:
        """Return the values between which the likeliest lies in 90 % of the samples of blocks."""
        if isinstance(self.best, str | bool):
            return self.best, self.best
        values = sorted(self.tried)
        logs = [evidence.likelihoods(self.tried[value]) for value in values]
        low, high = np.quantile(np.argmax(logs, axis=0), (0.05, 0.95), method="nearest")
        return values[low], values[high]
