"""Distributions and processes as text: what is read, and what is said of wrong ones."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from servetwin.app.scenario.options.distributions import (
    DEFAULT_PROMPT,
    ArrivalChoice,
    arrivals_of,
    lengths_of,
    think_time_of,
)
from servetwin.workloads.errors import TraceError
from servetwin.workloads.generators.pauses import ExponentialPause, LognormalPause


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("poisson", {"name": "poisson"}),
        ("gamma:cv=2", {"name": "gamma", "cv": 2.0}),
        ("mmpp2:on=3,off=7", {"name": "mmpp2", "on_s": 3.0, "off_s": 7.0}),
        ("clients:clients=9", {"name": "clients", "clients": 9}),
        ("ramp:from=1,to=9,steps=3", {"name": "ramp", "from_per_s": 1, "to_per_s": 9, "steps": 3}),
    ],
)
def test_arrivals_as_people_write_them(text: str, fields: dict[str, Any]) -> None:
    assert arrivals_of(text, ArrivalChoice()) == replace(ArrivalChoice(), **fields)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("512", {"name": "fixed", "mean_tokens": 512.0}),
        ("lognormal", {}),
        ("uniform:mean=9,cv=0.2,max=11", {"name": "uniform", "mean_tokens": 9, "cv": 0.2,
                                          "max_tokens": 11}),
        ("zipf:exponent=2,max=99", {"name": "zipf", "zipf": 2.0, "max_tokens": 99}),
    ],
)  # fmt: skip
def test_lengths_as_people_write_them(text: str, fields: dict[str, Any]) -> None:
    assert lengths_of(text, DEFAULT_PROMPT, "--x") == replace(DEFAULT_PROMPT, **fields)


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
            lambda: arrivals_of("gama", ArrivalChoice()),
            "--arrivals: unknown arrival process 'gama'; did you mean",
        ),
        (
            lambda: arrivals_of("gamma:cvs=2", ArrivalChoice()),
            "--arrivals gamma: unknown setting 'cvs'; did you mean 'cv'?",
        ),
        (
            lambda: arrivals_of("poisson:cv=2", ArrivalChoice()),
            "--arrivals poisson: unknown setting 'cv'; it takes none",
        ),
        (
            lambda: arrivals_of("gamma:cv=much", ArrivalChoice()),
            "--arrivals gamma: cv: 'much' is not a number",
        ),
        (
            lambda: arrivals_of("ramp:from=1,to=2,steps=2.5", ArrivalChoice()),
            "--arrivals ramp: steps: '2.5' is not a whole number",
        ),
        (
            lambda: arrivals_of("ramp:from=1", ArrivalChoice()).process(),
            "--arrivals ramp: wants two rates, such as ramp:from=1,to=10",
        ),
        (
            lambda: arrivals_of("ramp:from=1,to=2,steps=1", ArrivalChoice()).process(),
            "--arrivals ramp: a staircase has at least 2 steps, not 1",
        ),
        (
            lambda: arrivals_of("ramp:from=0,to=0", ArrivalChoice()).process(),
            "rates of a ramp must be 0 or positive, one positive, not 0 and 0",
        ),
        (
            lambda: lengths_of("0", DEFAULT_PROMPT, "--x").distribution(),
            "the fixed length must be a pos",
        ),
        (
            lambda: lengths_of("zipf", DEFAULT_PROMPT, "--x").distribution(),
            "zipf lengths want a largest",
        ),
        (lambda: lengths_of("²", DEFAULT_PROMPT, "--x"), "--x: unknown"),
        (lambda: lengths_of("9" * 400, DEFAULT_PROMPT, "--x"), "9' is not a whole number"),
        (lambda: think_time_of("exponential"), "wants its mean, such as exponential:mean=2"),
        (lambda: think_time_of("-2"), "the median think time must be a positive number, not -2"),
    ],
)
def test_bad_texts_are_one_line(make: Any, message: str) -> None:
    with pytest.raises(TraceError) as caught:
        make()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
