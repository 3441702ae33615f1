"""Generators: seeded, independent streams, and the laws they claim."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import log, sqrt
from pathlib import Path

import numpy as np
import pytest

from servetwin.workloads.errors import TraceError
from servetwin.workloads.generators.arrivals import (
    ArrivalProcess,
    ConstantArrivals,
    GammaArrivals,
    PoissonArrivals,
)
from servetwin.workloads.generators.generate import (
    WorkloadSpec,
    generate,
    with_arrivals,
    with_output_lengths,
)
from servetwin.workloads.generators.lengths import (
    EmpiricalLengths,
    FixedTokens,
    IndependentLengths,
    LognormalTokens,
)
from servetwin.workloads.generators.named import NAMED, find_named
from servetwin.workloads.generators.prefixes import PrefixGroups
from servetwin.workloads.readers.native import write_trace
from servetwin.workloads.readers.prompt_records import NO_TIMES
from servetwin.workloads.reading import read_trace, sample_trace
from servetwin.workloads.request import Request
from servetwin.workloads.statistics.statistics import statistics
from servetwin.workloads.trace import Trace
from servetwin.workloads.transform import at_rate
from tests.support.effort import REDUCTION
from tests.support.paths import SAMPLE
from tests.support.prompt_files import ANSWERS, lines, sharegpt, written

LENGTHS = IndependentLengths(
    LognormalTokens.from_mean(128, 0.8), LognormalTokens.from_mean(24, 0.6)
)
SPEC = WorkloadSpec(500, PoissonArrivals(4.0), LENGTHS, PrefixGroups(8, 64))

SAMPLE_SPEC = WorkloadSpec(
    requests=240,
    arrivals=GammaArrivals(rate_per_s=4.0, cv=1.2),
    lengths=IndependentLengths(
        prompt=LognormalTokens.from_mean(128, 0.8, max_tokens=512),
        output=LognormalTokens.from_mean(24, 0.6, max_tokens=96),
    ),
    prefixes=PrefixGroups(groups=8, prefix_tokens=64, zipf=1.0),
)
SAMPLE_SEED = 1


def arrivals(trace: Trace) -> list[float]:
    return [r.arrival_s for r in trace]


def lengths(trace: Trace) -> list[tuple[int, int]]:
    return [(r.prompt_tokens, r.output_tokens) for r in trace]


def group_of(request: Request) -> int:
    return request.prefix_block_ids[0] // 4


def test_the_sample_is_what_its_specification_generates(tmp_path: Path) -> None:
    path = tmp_path / "sample.jsonl"
    write_trace(generate(SAMPLE_SPEC, SAMPLE_SEED), path)
    assert path.read_bytes() == SAMPLE.read_bytes()
    assert sample_trace() == generate(SAMPLE_SPEC, SAMPLE_SEED)


def test_same_seed_same_trace_other_seed_other_trace() -> None:
    assert generate(SPEC, 3) == generate(SPEC, 3)
    assert arrivals(generate(SPEC, 3)) != arrivals(generate(SPEC, 4))


def test_each_part_has_its_own_stream() -> None:
    base = generate(SPEC, 3)
    longer = LognormalTokens.from_mean(900, 0.1)
    other_lengths = generate(replace(SPEC, lengths=replace(LENGTHS, prompt=longer)), 3)
    assert arrivals(other_lengths) == arrivals(base)
    groups = [
        (group_of(a), group_of(b))
        for a, b in zip(base, other_lengths, strict=True)
        if a.prompt_tokens > 16
    ]
    assert len(groups) > 400
    assert all(before == after for before, after in groups)
    assert [out for _, out in lengths(other_lengths)] == [out for _, out in lengths(base)]
    assert lengths(other_lengths) != lengths(base)
    other_arrivals = generate(replace(SPEC, arrivals=GammaArrivals(4.0, 3.0)), 3)
    assert [replace(r, arrival_s=0) for r in other_arrivals] == [
        replace(r, arrival_s=0) for r in base
    ]
    no_prefixes = generate(replace(SPEC, prefixes=None), 3)
    assert (arrivals(no_prefixes), lengths(no_prefixes)) == (arrivals(base), lengths(base))
    assert {r.prefix_block_ids for r in no_prefixes} == {()}


@pytest.mark.parametrize(
    ("process", "cv"),
    [(PoissonArrivals(5.0), 1.0), (GammaArrivals(5.0, 2.0), 2.0), (GammaArrivals(5.0, 0.5), 0.5)],
)
@pytest.mark.slow
def test_arrivals_have_their_rate_and_cv(process: ArrivalProcess, cv: float) -> None:
    count = 20_000 // REDUCTION
    figures = statistics(generate(replace(SPEC, requests=count, arrivals=process), 0))
    # four standard errors of the mean gap, and of a CV (wide: kurtosis grows with the CV)
    assert figures["rate_per_s"] == pytest.approx(5.0, rel=4 * cv / sqrt(count))
    assert figures["cv_iat"] == pytest.approx(cv, rel=4 * sqrt((0.5 + cv**2) / count))


def test_constant_arrivals_start_at_zero() -> None:
    spec = WorkloadSpec(4, ConstantArrivals(4.0), LENGTHS)
    assert arrivals(generate(spec, 0)) == [0.0, 0.25, 0.5, 0.75]


def test_lognormal_by_mean_and_cv() -> None:
    law = LognormalTokens.from_mean(1000, 0.5)
    assert (law.mu, law.sigma) == (log(1000) - log(1.25) / 2, sqrt(log(1.25)))
    tokens = law.sample(100_000, np.random.default_rng(0))
    assert tokens.mean() == pytest.approx(1000, rel=4 * 0.5 / sqrt(100_000))


def test_lognormal_of_cv_zero_is_fixed() -> None:
    law = LognormalTokens.from_mean(77, 0)
    assert set(law.sample(5, np.random.default_rng(0)).tolist()) == {77}


def test_caps_hold() -> None:
    tokens = LognormalTokens(3.0, 2.0, 5, 50).sample(1000, np.random.default_rng(0))
    assert (tokens.min(), tokens.max()) == (5, 50)


def test_fixed_lengths() -> None:
    spec = replace(SPEC, lengths=IndependentLengths(FixedTokens(9), FixedTokens(2)))
    assert set(lengths(generate(spec, 0))) == {(9, 2)}


def test_empirical_lengths_keep_their_pairs() -> None:
    pairs = [(10, 1), (20, 2), (20, 2), (30, 3)]
    source = Trace(tuple(Request(str(i), 0.0, *pair) for i, pair in enumerate(pairs)), "short")
    spec = WorkloadSpec(4000, PoissonArrivals(1.0), EmpiricalLengths.of(source))
    drawn = Counter(lengths(generate(spec, 0)))
    assert drawn.keys() == set(pairs)
    assert drawn[20, 2] == pytest.approx(2000, abs=4 * sqrt(1000))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PoissonArrivals(0), "the rate must be a positive number, not 0"),
        (lambda: ConstantArrivals(float("inf")), "the rate must be a positive number, not inf"),
        (lambda: GammaArrivals(1, -1), "the cv of the arrivals must be a positive number, not -1"),
        (lambda: FixedTokens(0), "the fixed length must be a positive number, not 0"),
        (lambda: LognormalTokens(float("nan"), 1), "finite mu and sigma >= 0, not nan and 1"),
        (lambda: LognormalTokens(1, 1, 9, 8), "1 <= min <= max, not 9 and 8"),
        (lambda: LognormalTokens.from_mean(0, 1), "mean length must be a positive number, not 0"),
        (lambda: LognormalTokens.from_mean(1, -1), "cv of the lengths must be 0 or positive"),
        (lambda: EmpiricalLengths.of(Trace((), "t")), "t: no lengths to draw from"),
        (lambda: PrefixGroups(0, 64), "groups, prefix and block tokens must be at least 1"),
        (lambda: PrefixGroups(1, 64, -1), "the Zipf exponent must be 0 or positive, not -1"),
        (lambda: replace(SPEC, requests=0), "a trace has at least 1 request, not 0"),
        (lambda: generate(SPEC, -1), "a seed must be 0 or positive, not -1"),
    ],
)
def test_impossible_specifications(make: Callable[[], object], message: str) -> None:
    with pytest.raises(TraceError) as raised:
        make()
    assert message in str(raised.value)


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    rows = [{"prompt": f"question {number}"} for number in range(2000)]
    return read_trace(written(tmp_path / "many.jsonl", lines(*rows)))


def test_arrivals_are_a_poisson_process_by_seed(trace: Trace) -> None:
    timed = with_arrivals(trace, 4.0, 7)
    gaps_s = np.diff([request.arrival_s for request in timed])
    assert abs(gaps_s.mean() - 0.25) < 4 * 0.25 / np.sqrt(len(gaps_s))
    assert abs(gaps_s.std() / gaps_s.mean() - 1) < 0.1
    assert [r.prompt for r in timed] == [r.prompt for r in trace]
    assert timed == with_arrivals(trace, 4.0, 7)
    assert timed != with_arrivals(trace, 4.0, 8)
    assert timed.timed
    assert NO_TIMES not in timed.notes
    assert timed.notes[-1] == "no arrival times in the file: a Poisson process of 4/s (seed 7)"


def test_a_rate_gives_times_once_and_scales_them_then(trace: Trace) -> None:
    timed = at_rate(trace, 4.0, 7)
    assert timed == with_arrivals(trace, 4.0, 7)
    assert at_rate(timed, 2.0).rate_per_s == pytest.approx(2.0)


def test_other_output_lengths_replace_answers(tmp_path: Path) -> None:
    trace = read_trace(sharegpt(tmp_path))
    assert [r.answer for r in trace] == ANSWERS
    other = with_output_lengths(trace, FixedTokens(9), "9", 0)
    assert [(r.output_tokens, r.answer) for r in other] == [(9, None)] * 3
    assert other.notes[-1] == "outputs 9, seed 0"


def test_the_scenarios_of_the_notes_have_names() -> None:
    assert set(NAMED) == {
        "chat", "code-completion", "batch-processing", "evaluation", "rl-rollouts", "long-thinking",
    }  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_a_named_workload_says_what_is_sourced_and_how_long_and_often(name: str) -> None:
    workload = find_named(name)
    assert any(year in workload.source for year in ("2021", "2023", "2024", "2025"))
    wanted = {"requests", "arrivals", "rate", "prompt-tokens", "output-tokens"}
    assert wanted <= set(workload.options)
    assert "--rate " in workload.as_arguments()


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(TraceError, match="mean 'chat'"):
        find_named("chats")
