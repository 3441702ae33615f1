"""The acceptance of drafts, which no formula knows: measured in the step log of a run before."""

from collections.abc import Sequence
from dataclasses import replace

from servetwin.app.verdict.effects.sides import Sides
from servetwin.policies.step_record import StepRecord
from servetwin.sim.step_times.acceptance import OrderedAcceptance
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import Technique

_HALVINGS = 20


def needs_acceptance(sides: Sides) -> bool:
    """Return whether the technique drafts, with an acceptance that was not given."""
    technique = sides.technique
    return "alpha" in type(technique).model_fields and not technique.is_given("alpha")


def with_measured_acceptance(sides: Sides, steps: Sequence[StepRecord]) -> Sides:
    """Return ``sides`` with the ``alpha`` of the technique as the steps of a log have it.

    Unchanged where that is not needed, or where the log has no whole pass.
    """
    technique = sides.technique
    accepted = mean_accepted(steps)
    if accepted is None or not needs_acceptance(sides):
        return sides
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        law = _with_alpha(technique, sides.without.setup, middle).acceptance
        assert isinstance(law, OrderedAcceptance)
        low, high = (middle, high) if sum(law.reach) < accepted else (low, middle)
    setup = _with_alpha(technique, sides.without.setup, (low + high) / 2)
    return replace(sides, with_it=replace(sides.with_it, setup=setup))


def mean_accepted(steps: Sequence[StepRecord]) -> float | None:
    """Return the mean accepted tokens of the passes that drafted the most; None without any.

    The last passes of an answer draft fewer.
    """
    passes = [(drafted, accepted) for step in steps for _, drafted, accepted in step.drafts]
    most = max((drafted for drafted, _ in passes), default=0)
    whole = [accepted for drafted, accepted in passes if drafted == most]
    return sum(whole) / len(whole) if most else None


def _with_alpha(technique: Technique, setup: Setup, alpha: float) -> Setup:
    return technique.model_copy(update={"alpha": alpha}).apply(setup)
