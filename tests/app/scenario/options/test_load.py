"""The options of a load as written on the command line: generated loads, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servetwin.app.scenario.options.load import LoadChoice
from servetwin.app.scenario.options.trace import TraceShape
from servetwin.loadtest.options import LoadOptions
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.trace import Trace
from tests.support.effort import examples
from tests.support.mock_load import GAPS_MS, paired_trace


@settings(max_examples=examples(20))
@given(GAPS_MS, st.sampled_from([0.1, 0.5, 1.0, 3.0]))
def test_a_rate_scale_scales_every_gap(gaps_ms: list[int], factor: float) -> None:
    trace = paired_trace(gaps_ms)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("servetwin.workloads.reading.read_trace", lambda *_, **__: trace)
        scaled = LoadChoice(Path("pairs.jsonl"), shape=TraceShape(rate_scale=1 / factor)).trace()
    gaps = [np.diff([r.arrival_s for r in each]) for each in (trace, scaled)]
    assert np.allclose(gaps[1], factor * gaps[0])
    assert [r.delay_s and r.delay_s / factor for r in scaled] == [r.delay_s for r in trace]


@pytest.mark.parametrize("steps", ["", ",steps=4"])
def test_a_ramp_has_the_arrivals_of_its_line(steps: str) -> None:
    """The expected count up to t: 2 t + t^2 / 10 on the line from 2/s to 8/s over 30 s."""
    counts = []
    for seed in range(40):
        choice = LoadChoice(arrivals=f"ramp:from=2,to=8{steps}", duration_s=30.0, seed=seed)
        arrivals_s = [r.arrival_s for r in choice.trace()]
        counts.append([sum(at_s < end_s for at_s in arrivals_s) for end_s in (15.0, 30.0)])
    expected = {"": (52.5, 150.0), ",steps=4": (45.0, 150.0)}[steps]
    for found, wanted in zip(np.mean(counts, axis=0), expected, strict=True):
        assert abs(found - 1 - wanted) < 4 * np.sqrt(wanted / 40) + 0.5  # the first is at 0


@given(
    st.sampled_from(["poisson", "gamma:cv=2", "constant", "mmpp2:on=1,off=1"]), st.integers(0, 9)
)
@settings(max_examples=examples(15))
def test_generated_loads_end_with_the_duration_and_come_again(process: str, seed: int) -> None:
    choice = LoadChoice(arrivals=process, rate_per_s=20.0, duration_s=5.0, seed=seed)
    trace = choice.trace()
    assert trace == LoadChoice(**choice.record()).trace()
    assert trace.requests[-1].arrival_s < 5.0
    short = LoadChoice(arrivals=process, rate_per_s=20.0, limit=7, seed=seed).trace()
    assert len(short) == 7


def test_a_constant_load_is_what_it_says() -> None:
    choice = LoadChoice(
        arrivals="constant", rate_per_s=4.0, duration_s=1.0, prompt_tokens="8", output_tokens="3"
    )
    found = [(r.arrival_s, r.prompt_tokens, r.output_tokens) for r in choice.trace()]
    assert found == [(0.0, 8, 3), (0.25, 8, 3), (0.5, 8, 3), (0.75, 8, 3)]


TRACE = Path("t.jsonl")
BAD: list[tuple[dict[str, Any], str]] = [
    ({"path": TRACE, "arrivals": "poisson"}, "--arrivals and --trace exclude each other"),
    ({"concurrency": 2, "arrivals": "poisson"}, "--arrivals and --concurrency exclude each other"),
    ({"arrivals": "poisson", "rate_per_s": 2.0}, "the load has no end: give --duration S or"),
    ({"concurrency": 2}, "the load has no end: give --duration S or --limit N"),
    ({"concurrency": 2, "limit": 9, "rate_per_s": 2.0}, "--concurrency: how fast users send is up"),
    (
        {"concurrency": 2, "path": TRACE, "shape": TraceShape(rate_scale=2.0)},
        "--concurrency: how fast users send",
    ),
    ({"concurrency": 2, "limit": 9, "closed_loop": False}, "--open-loop and --concurrency exclude"),
    ({"path": TRACE, "think_time": "2"}, "--think-time and --ramp-up are of users"),
    ({"path": TRACE, "ramp_up_s": 2.0}, "--think-time and --ramp-up are of users"),
    ({"path": TRACE, "prompt_tokens": "5"}, "--prompt-tokens and --output-tokens are of a gen"),
    (
        {"path": TRACE, "rate_per_s": 1.0, "shape": TraceShape(rate_scale=2.0)},
        "--rate and --rate-scale",
    ),
    ({"path": TRACE, "limit": 0}, "--limit 0: must be at least 1 request"),
    (
        {"arrivals": "poisson", "limit": 3, "rate_per_s": 1.0, "loop": 2},
        "--loop, --lanes and scales are",
    ),
    (
        {"arrivals": "poisson", "limit": 3, "rate_per_s": 1.0, "shape": TraceShape(start_s=1.0)},
        "--start, --end, --loop, --lanes and scales are of a trace: give --trace as well",
    ),
    ({"arrivals": "poisson", "limit": 3}, "--arrivals poisson: wants --rate R, in requests/s"),
    ({"arrivals": "ramp:from=1,to=2", "limit": 3}, "--arrivals ramp: wants --duration S"),
    (
        {"arrivals": "ramp:from=1,to=2", "duration_s": 3.0, "rate_per_s": 1.0},
        "--arrivals ramp has rates of its own: leave --rate out",
    ),
    (
        {"path": TRACE, "concurrency": 2, "shape": TraceShape(lanes="2")},
        "--concurrency and --lanes exclude each other",
    ),
    (
        {"path": TRACE, "duration_s": 9.0, "shape": TraceShape(lanes="2")},
        "--duration and --lanes exclude each other",
    ),
    ({"path": TRACE, "duration_s": 0.0}, "duration 0 s: must be above 0"),
    ({"path": TRACE, "duration_s": float("nan")}, "duration nan s: must be above 0"),
    ({"path": TRACE, "warm_up_s": 5.0, "duration_s": 5.0}, "warm-up 5 s: must be 0 or more, and"),
    ({"path": TRACE, "warm_up_s": float("nan")}, "warm-up nan s: must be 0 or more"),
    ({"path": TRACE, "drain_s": -1.0}, "drain -1 s: must be 0 or more"),
    ({"path": TRACE, "retries": -1}, "retries and seed must be 0 or more"),
    ({"path": TRACE, "cancel": "half"}, "--cancel: 'half' is not share=P or after=N"),
    ({"concurrency": 2, "limit": 9, "ramp_up_s": float("nan")}, "--ramp-up nan: must be 0 s"),
]


def made(**fields: Any) -> tuple[LoadOptions, Trace]:
    choice = LoadChoice(**fields)
    return choice.options(), choice.trace()


@pytest.mark.parametrize(("fields", "message"), BAD)
def test_bad_loads_are_one_line(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(LoadTestError) as caught:
        made(**fields)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
