"""Acceptance as a step log has it."""

from typing import Any

import pytest

from servetwin.app.verdict.effects.prediction import mean_accepted, with_measured_acceptance
from servetwin.policies.step_record import StepRecord
from servetwin.sim.step_times.acceptance import OrderedAcceptance
from tests.support.known_effects import sides


def step(*drafts: tuple[int, int]) -> StepRecord:
    named = [(str(place), drafted, accepted) for place, (drafted, accepted) in enumerate(drafts)]
    return StepRecord(0, 0.0, 0.0, False, [], [], [], 0, 1, 0, named)


@pytest.mark.parametrize(
    "technique",
    [
        "self-speculation:drafts=3",
        "tree-speculation:draft=tiny,any_vocabulary=true,widths=3x1x1",
        "speculative:draft=tiny,any_vocabulary=true,drafts=3,least_confidence=0.2",
    ],
)
def test_the_law_accepts_as_many_as_the_log(technique: str) -> None:
    steps = [step((5, 2), (5, 1)), step((5, 0), (2, 2)), step()]
    found = with_measured_acceptance(sides(technique), steps).with_it.setup.acceptance
    assert isinstance(found, OrderedAcceptance)
    assert sum(found.reach) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize(
    ("technique", "steps"),
    [
        ("self-speculation:alpha=0.5", [step((4, 4))]),
        ("self-speculation", [step()]),
        ("weight-int8", [step((4, 4))]),
    ],
)
def test_what_was_given_or_drafts_nothing_stays(technique: str, steps: list[Any]) -> None:
    before = sides(technique)
    assert with_measured_acceptance(before, steps) == before


def test_only_whole_passes_count() -> None:
    assert mean_accepted([step((4, 3), (1, 1)), step((4, 0))]) == 1.5
    assert mean_accepted([step()]) is None
