"""Why a prediction differs: the setting that explains the measurements best, and what was sent."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path

import numpy as np
import pandas as pd
from pydantic import TypeAdapter

from servetwin.app.calibration.recorded import FEWEST
from servetwin.app.verdict.measured_facts import MeasuredFacts
from servetwin.app.verdict.why.hypotheses import (
    Evidence,
    Hypothesis,
    machine_pace,
    rank,
    stated_steps,
)
from servetwin.app.verdict.why.settings import Server, kv_tokens, server_notes, settings_of
from servetwin.sim.experiments.measured_parts import MeasuredParts, simulate_measured
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.records.metrics import derive
from servetwin.sim.records.run import Files, RunError
from servetwin.workloads.errors import os_errors
from servetwin.workloads.files import mapping_in

# The file of a run folder that holds an explanation.
WHY = "why.json"
# Arrivals come so much later from simulation to simulation that has the measured steps.
_SHIFT_S = 0.0005


@dataclass(frozen=True, slots=True)
class Explanation:
    """The competing hypotheses on a measured run, best first, and notes on what was sent.

    There are no hypotheses where too few requests were answered, which a note says.
    """

    hypotheses: tuple[Hypothesis, ...]
    notes: tuple[str, ...]

    def files(self) -> Files:
        """Yield the file of a run folder."""
        yield WHY, json.dumps(asdict(self), indent=1).encode()


def read_explanation(folder: Path) -> Explanation | None:
    """Return the explanation that a folder holds; None without one.

    Raises ``RunError`` for a damaged file.
    """
    path = folder / WHY
    if not path.exists():
        return None
    unread = f"{path}: not a readable explanation"
    with os_errors(RunError, unread, ValueError, KeyError, TypeError):
        return TypeAdapter(Explanation).validate_python(mapping_in(path))


def explain_error(
    scenario: Scenario,
    facts: MeasuredFacts,
    *,
    seed: int = 0,
    on_simulation: Callable[[int], None] = lambda done: None,
) -> Explanation:
    """Fit each setting of the server alone to what ``facts`` measured, over its whole range.

    What was sent, and when, is as measured in every simulation. It takes seconds; ``on_simulation``
    receives the number of simulations.
    """
    notes = [_lateness(facts), _changed_lengths(facts), *server_notes(facts)]
    if len(facts.requests) < FEWEST:
        few = f"{len(facts.requests)} answered requests are too few to tell which setting is wrong"
        return Explanation((), (*notes, f"{few}; at least {FEWEST} are needed"))
    stated = Server(scenario.policies)
    settings = settings_of(facts, stated, scenario.profile.api.request_s)
    evidence = _evidence(scenario, facts, seed, on_simulation)
    return Explanation(tuple(rank(evidence, stated, settings)), tuple(notes))


def _lateness(facts: MeasuredFacts) -> str:
    rows = facts.answered
    late_s = (rows["sent_s"] - rows["scheduled_s"]).quantile(0.99)
    return f"requests were sent late by {1e3 * late_s:.3g} ms (p99)"


def _changed_lengths(facts: MeasuredFacts) -> str:
    traced = np.array([[r.prompt_tokens, r.output_tokens] for r in facts.requests])
    answered = facts.answered[["prompt_tokens", "output_tokens"]].to_numpy(int)
    changed = int((traced != answered).any(axis=1).sum())
    return f"{changed} of {len(traced)} requests had other lengths than in the trace"


def _evidence(
    scenario: Scenario, facts: MeasuredFacts, seed: int, on_simulation: Callable[[int], None]
) -> Evidence:
    """Return what was measured, with simulations of what was sent."""
    sent, simulations = facts.trace(), count(1)
    scheduled_s = facts.answered["scheduled_s"]
    pace = None if facts.steps else machine_pace(facts.run, scenario)

    def simulate(server: Server, draw: int) -> pd.DataFrame:
        on_simulation(next(simulations))
        way_in_s = scenario.profile.api.request_s
        if server.request_s is not None:
            way_in_s = server.request_s
        if facts.steps or pace:  # which leave no noise: only this tells luck from likeness
            way_in_s += _SHIFT_S * draw
        parts = MeasuredParts(facts.steps, pace, server.scale, way_in_s)
        other = replace(scenario, policies=server.policies)
        run = simulate_measured(sent, other, parts, seed + draw)
        return derive(run.requests.set_index("request_id").assign(scheduled_s=scheduled_s))

    steps = stated_steps(facts.run, facts.steps, scenario) if facts.steps else None
    known_steps = None if steps is None or steps.empty else steps
    return Evidence(facts.answered, simulate, known_steps, kv_tokens(facts))
