"""Why a prediction differs: what was predicted is replaced by what was measured, part by part.

Each part stays replaced while the next ones are: the change of the error that it brings is its
effect, the effects sum up, and what no part explains is left.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from servetwin.app.calibration.recorded import FEWEST
from servetwin.app.verdict.measured_facts import MeasuredFacts
from servetwin.app.verdict.why.hypotheses import Evidence, Hypothesis, rank, stated_steps, tied
from servetwin.app.verdict.why.settings import STEP_TIMES, Server, settings_of
from servetwin.loadtest.recorded.formats import is_inside_engine
from servetwin.sim.experiments.measured_parts import MeasuredParts, simulate_measured
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.records.metrics import derive, mean_latencies
from servetwin.sim.records.run import Files, Run, RunError

WHY = "why.json"
"""The file of a run folder that holds a waterfall."""
_SAME = 1e-9
_SHIFT_S = 0.0005
"""Arrivals come so much later from simulation to simulation that has the measured steps."""
_TOKENS = ["first_token_s", "last_token_s"]

Errors = Mapping[str, float]
"""Relative errors of the mean latencies, by name (``LATENCIES``)."""


@dataclass(frozen=True, slots=True)
class Cause:
    """A part that was replaced: the errors from then on, and what was measured.

    ``errors`` is None where the part was not measured; ``note`` says what is known of it.
    """

    name: str
    errors: Errors | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Waterfall:
    """The errors of a prediction and the causes in the order in which they were replaced."""

    predicted: Errors
    causes: tuple[Cause, ...]
    hypotheses: tuple[Hypothesis, ...] = ()

    @property
    def left(self) -> Errors:
        """The errors that no measured part explains."""
        return [self.predicted, *(one.errors for one in self.causes if one.errors)][-1]

    def effects(self) -> Iterator[tuple[Cause, Errors | None]]:
        """Yield each cause and its share of the error; None where it was not measured."""
        before = self.predicted
        for cause in self.causes:
            if cause.errors is None:
                yield cause, None
                continue
            yield cause, {name: before[name] - cause.errors[name] for name in before}
            before = cause.errors

    def as_dict(self) -> dict[str, Any]:
        """Return the errors, the effects and what is left, for JSON."""
        return {
            "predicted": dict(self.predicted),
            "causes": [
                {**asdict(cause), "effect": effect and dict(effect)}
                for cause, effect in self.effects()
            ],
            "left": dict(self.left),
            "hypotheses": [asdict(one) for one in self.hypotheses],
        }

    def files(self) -> Files:
        """Yield the file of a run folder."""
        yield WHY, json.dumps(self.as_dict(), indent=1).encode()


def read_waterfall(folder: Path) -> Waterfall | None:
    """Return the waterfall that a folder holds; None without one.

    Raises ``RunError`` for a damaged file.
    """
    path = folder / WHY
    if not path.exists():
        return None
    try:
        record = json.loads(path.read_text())
        causes = [Cause(one["name"], one["errors"], one["note"]) for one in record["causes"]]
        hypotheses = [Hypothesis(**one) for one in record.get("hypotheses", ())]
        return Waterfall(record["predicted"], tuple(causes), tuple(hypotheses))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path}: not a readable waterfall ({error})") from error


def explain_error(
    predicted: Mapping[str, float],
    scenario: Scenario,
    facts: MeasuredFacts,
    *,
    seed: int = 0,
    on_simulation: Callable[[int], None] = lambda done: None,
) -> Waterfall:
    """Replace the parts of a prediction by what ``facts`` measured, one at a time.

    ``predicted`` has the mean latencies that were predicted, in seconds. The settings of the server
    are simulated over their whole ranges (``hypotheses``), which takes seconds; ``on_simulation``
    receives the number of these simulations.
    """
    replacing = _Replacing(scenario, facts, seed, on_simulation)
    start = replacing.errors_of(predicted)
    return Waterfall(start, tuple(replacing.causes(start)), tuple(replacing.hypotheses))


@dataclass
class _Replacing:
    """The parts that are replaced so far."""

    scenario: Scenario
    facts: MeasuredFacts
    seed: int
    on_simulation: Callable[[int], None]
    imposed: MeasuredParts = field(default_factory=MeasuredParts)
    sent: bool = False
    lengths: bool = False
    hypotheses: Sequence[Hypothesis] = ()

    def __post_init__(self) -> None:
        self._scheduled_s = self.facts.answered["scheduled_s"]
        means_s = mean_latencies(self.facts.answered)
        self._measured = {name: mean_s for name, mean_s in means_s.items() if mean_s > 0}
        self._is_inside = is_inside_engine(self.facts.run)

    def errors_of(self, means_s: Mapping[str, float]) -> Errors:
        """Return the relative errors of mean latencies."""
        return {
            name: means_s[name] / measured - 1
            for name, measured in self._measured.items()
            if name in means_s
        }

    def causes(self, predicted: Errors) -> Iterator[Cause]:
        """Replace one part after the other."""
        facts, single = self.facts, self._errors()
        if any(abs(single[name] - predicted[name]) > _SAME for name in single):
            yield Cause("one simulation", single, "instead of the median of many")
        self.sent = True
        late_s = (facts.answered["sent_s"] - self._scheduled_s).quantile(0.99)
        yield Cause("send times", self._errors(), f"p99 {1e3 * late_s:.3g} ms late")
        self.lengths = True
        yield Cause("lengths", self._errors(), self._changed_lengths())
        yield self._way_in()
        yield self._prefix_hits()
        yield self._admission()
        yield self._setting()
        if facts.steps:
            yield from self._steps()

    def _errors(self) -> Errors:
        run = self._simulated()
        return self.errors_of(mean_latencies(run.requests))

    def _simulated(self) -> Run:
        """Simulate with what is replaced so far; latencies count from the scheduled arrivals."""
        trace = self.facts.trace(sent=self.sent, lengths=self.lengths)
        if self.imposed.at_scheduler:
            received_s = self.facts.received_s or {}
            arrivals = [replace(one, arrival_s=received_s[one.request_id]) for one in trace]
            trace = replace(trace, requests=tuple(sorted(arrivals, key=lambda r: r.arrival_s)))
        run = simulate_measured(trace, self.scenario, self.imposed, self.seed)
        rows = run.requests.set_index("request_id")
        rows["scheduled_s"] = self._scheduled_s
        if self.imposed.at_step_end:
            rows[_TOKENS] += self._way_out_s()
        return replace(run, requests=derive(rows.reset_index()))

    def _changed_lengths(self) -> str:
        rows = self.facts.answered
        traced = np.array([[r.prompt_tokens, r.output_tokens] for r in self.facts.requests])
        answered = rows[["prompt_tokens", "output_tokens"]].to_numpy(int)
        changed = int((traced != answered).any(axis=1).sum())
        return f"{changed} of {len(traced)} requests had others"

    def _way_in(self) -> Cause:
        received_s = self.facts.received_s
        name = "way to the scheduler"
        if self._is_inside:
            return Cause(name, self._errors(), "none: the stamps are inside the engine")
        if received_s is None:
            return Cause(name, None, "the server's log is not known")
        if missing := self._missing(received_s):
            return Cause(name, None, f"request {missing} is not in the server's log")
        self.imposed = replace(self.imposed, at_scheduler=True)
        sent_s = self.facts.answered["sent_s"]
        took_s = np.mean([received_s[str(request)] - at for request, at in sent_s.items()])
        return Cause(name, self._errors(), f"mean {1e3 * took_s:.3g} ms")

    def _missing(self, logged: Mapping[str, object]) -> str | None:
        """Return the first request that a log lacks."""
        return next((r.request_id for r in self.facts.requests if r.request_id not in logged), None)

    def _prefix_hits(self) -> Cause:
        hits, name = self.facts.cached_tokens, "prefix hits"
        may_hit = any(request.prefix_block_ids for request in self.facts.requests)
        if hits is None and may_hit and self.scenario.policies.prefix_cache:
            return Cause(name, None, "no hits were recorded")
        hit_tokens, prompts = sum((hits or {}).values()), self.facts.answered["prompt_tokens"].sum()
        if hits is not None and (hit_tokens or self.scenario.policies.prefix_cache):
            self.imposed = replace(self.imposed, cached_tokens=hits)
        return Cause(name, self._errors(), f"{hit_tokens / prompts:.1%} of the prompt tokens")

    def _admission(self) -> Cause:
        admission, policies, name = self.facts.admission, self.scenario.policies, "admission order"
        if admission is None:
            return Cause(name, None, "not recorded")
        if policies.victim == "lowest-priority":
            return Cause(name, None, "cannot be imposed where victims are chosen by priority")
        self.imposed = replace(self.imposed, admission=admission)
        arrival = {request.request_id: at for at, request in enumerate(self.facts.requests)}
        places = [arrival[one] for one in admission if one in arrival]
        earlier = sum(later < place for place, later in pairwise(places))
        return Cause(name, self._errors(), f"{earlier} requests were overtaken")

    def _setting(self) -> Cause:
        """Replace the setting that was stated wrongly, if the measurements name one."""
        facts, name = self.facts, "settings"
        if len(facts.requests) < FEWEST:
            few = f"{len(facts.requests)} answered requests are too few to tell"
            return Cause(name, None, f"{few}; at least {FEWEST} are needed")
        stated = Server(self.scenario.policies)
        settings = [*settings_of(facts, stated, self.scenario.profile.api.request_s)]
        self.hypotheses = rank(self._evidence(), stated, settings)
        named = tied(self.hypotheses)
        if not named:
            return Cause(name, self._errors(), "none explains clearly more than as stated")
        best = named[0]
        if facts.steps and best.name in STEP_TIMES:
            return Cause(name, self._errors(), "as stated; the step times are not")
        change = next(one.change for one in settings if one.name == best.name)
        server = change(best.estimate)
        self.scenario = replace(self.scenario, policies=server.policies)
        self.imposed = replace(self.imposed, scale=server.scale, request_s=server.request_s)
        return Cause(best.name, self._errors(), f"{best.in_words}")

    def _evidence(self) -> Evidence:
        """Return what was measured, with simulations of what was sent."""
        facts, scenario, simulations = self.facts, self.scenario, count(1)
        sent = facts.trace(sent=True, lengths=True)

        def simulate(server: Server, seed: int) -> pd.DataFrame:
            self.on_simulation(next(simulations))
            way_in_s = scenario.profile.api.request_s
            if server.request_s is not None:
                way_in_s = server.request_s
            if facts.steps:  # which leave no noise: only this tells luck from likeness
                way_in_s += _SHIFT_S * seed
            parts = MeasuredParts(steps=facts.steps, scale=server.scale, request_s=way_in_s)
            other = replace(scenario, policies=server.policies)
            run = simulate_measured(sent, other, parts, self.seed + seed)
            rows = run.requests.set_index("request_id").assign(scheduled_s=self._scheduled_s)
            return derive(rows)

        steps = stated_steps(facts.run, facts.steps, scenario) if facts.steps else None
        return Evidence(facts.answered, simulate, None if steps is None or steps.empty else steps)

    def _steps(self) -> Iterator[Cause]:
        """Replace the steps by those of the log."""
        self.imposed = replace(self.imposed, steps=self.facts.steps)
        yield Cause("step times", self._errors(), f"{len(self.facts.steps or ())} logged steps")
        yield self._way_out()

    def _way_out(self) -> Cause:
        emitted_s, name = self.facts.emitted_s or {}, "way to the client"
        if missing := self._missing(emitted_s):
            return Cause(name, None, f"the tokens of {missing} are not in the server's log")
        self.imposed = replace(self.imposed, at_step_end=True)
        took_s = self._way_out_s()["last_token_s"].mean()
        return Cause(name, self._errors(), f"mean {1e3 * took_s:.3g} ms of last tokens")

    def _way_out_s(self) -> pd.DataFrame:
        """Return the seconds from the end of a step to its token at the client, by request id."""
        ended_s = pd.DataFrame.from_dict(
            dict(self.facts.emitted_s or {}), orient="index", columns=_TOKENS
        )
        return self.facts.answered[_TOKENS] - ended_s
