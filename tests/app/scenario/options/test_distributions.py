"""Distributions and processes as text: what is read, and what is said of wrong ones."""

from typing import Any

import numpy as np
import pytest

from servetwin.app.scenario.options.distributions import (
    USUAL_PROMPTS,
    ArrivalChoice,
    lengths_of,
    think_time_of,
)
from servetwin.workloads.errors import TraceError
from servetwin.workloads.generators.arrivals import (
    GammaArrivals,
    PoissonArrivals,
)
from servetwin.workloads.generators.lengths import (
    FixedTokens,
    LognormalTokens,
    UniformTokens,
)
from servetwin.workloads.generators.modulated import OnOffArrivals, ramp_arrivals
from servetwin.workloads.generators.pauses import ExponentialPause, LognormalPause


@pytest.mark.parametrize(
    ("text", "process"),
    [
        ("poisson", PoissonArrivals(4.0)),
        ("gamma:cv=2", GammaArrivals(4.0, 2.0)),
        ("mmpp2:on=3,off=7", OnOffArrivals(4.0, 3.0, 7.0)),
        ("ramp:from=1,to=9,steps=3", ramp_arrivals(4.0, 1.0, 9.0, 3)),
    ],
)
def test_arrivals_as_people_write_them(text: str, process: Any) -> None:
    assert ArrivalChoice(text).process() == process


@pytest.mark.parametrize(
    ("text", "law"),
    [
        ("512", FixedTokens(512)),
        ("fixed", FixedTokens(128)),
        ("lognormal", LognormalTokens.from_mean(128, 0.8)),
        ("uniform:mean=9,cv=0.2,max=11", UniformTokens(6, 11)),
    ],
)
def test_lengths_as_people_write_them(text: str, law: Any) -> None:
    assert lengths_of(text, USUAL_PROMPTS, "--x") == law


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2", LognormalPause(2.0, 0.0)),
        ("exponential:mean=0.5", ExponentialPause(0.5)),
        ("lognormal:median=3,sigma=1", LognormalPause(3.0, 1.0)),
    ],
)
def test_think_times_as_people_write_them(text: str, expected: Any) -> None:
    assert think_time_of(text) == expected


def test_a_fixed_think_time_is_fixed() -> None:
    sample = think_time_of("1.5").sample(5, np.random.default_rng(0))
    assert sample.tolist() == pytest.approx([1.5] * 5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: ArrivalChoice("gama").process(),
            "--arrivals: unknown arrival process 'gama'; did you mean",
        ),
        (
            lambda: ArrivalChoice("gamma:cvs=2").process(),
            "--arrivals gamma: unknown setting 'cvs'; did you mean 'cv'?",
        ),
        (
            lambda: ArrivalChoice("poisson:cv=2").process(),
            "--arrivals poisson: unknown setting 'cv'; it takes none",
        ),
        (
            lambda: ArrivalChoice("gamma:cv=much").process(),
            "--arrivals gamma: cv: 'much' is not a number",
        ),
        (
            lambda: ArrivalChoice("ramp:from=1,to=2,steps=2.5").process(),
            "--arrivals ramp: steps: '2.5' is not a whole number",
        ),
        (
            lambda: ArrivalChoice("ramp:from=1").process(),
            "--arrivals ramp: wants two rates, such as ramp:from=1,to=10",
        ),
        (
            lambda: ArrivalChoice("ramp:from=1,to=2,steps=1").process(),
            "--arrivals ramp: a staircase has at least 2 steps, not 1",
        ),
        (
            lambda: ArrivalChoice("ramp:from=0,to=0").process(),
            "rates must be 0 or positive, some positive: (0.0, 0.0)",
        ),
        (
            lambda: lengths_of("0", USUAL_PROMPTS, "--x"),
            "the fixed length must be a pos",
        ),
        (lambda: lengths_of("zipf:max=9", USUAL_PROMPTS, "--x"), "--x: unknown 'zipf'"),
        (lambda: lengths_of("²", USUAL_PROMPTS, "--x"), "--x: unknown"),
        (lambda: lengths_of("9" * 400, USUAL_PROMPTS, "--x"), "9' is not a whole number"),
        (lambda: think_time_of("exponential"), "wants its mean, such as exponential:mean=2"),
        (lambda: think_time_of("-2"), "the median think time must be a positive number, not -2"),
    ],
)
def test_bad_texts_are_one_line(make: Any, message: str) -> None:
    with pytest.raises(TraceError) as caught:
        make()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
