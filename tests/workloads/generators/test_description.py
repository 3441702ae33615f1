"""What generators draw, in plain English: every distribution, and the notes of their traces."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from servetwin.app.scenario.files.scenario_file import ScenarioFile
from servetwin.workloads.generators import arrivals, lengths, modulated, pauses, prefixes
from servetwin.workloads.generators.arrivals import describe
from servetwin.workloads.generators.conversations import agentic, multi_turn
from servetwin.workloads.generators.generate import WorkloadSpec, generate
from servetwin.workloads.generators.resampled import sent_by_users
from servetwin.workloads.reading import read_trace
from tests.support.command import servetwin

REPR = re.compile(r"\w+\(\w+=|object at 0x|<[a-z]")
HUNDRED = lengths.LognormalTokens.from_mean(100, 1.0)


@pytest.mark.parametrize(
    ("drawn", "said"),
    [
        (lengths.FixedTokens(1), "always 1 token"),
        (HUNDRED, "log-normal, mean 100 tokens, CV 1"),
        (
            lengths.LognormalTokens.from_mean(1024, 0.8, 4, 4096),
            "log-normal, mean 1,024 tokens, CV 0.8, 4 to 4,096",
        ),
        (lengths.LognormalTokens.from_mean(512, 0.0), "always 512 tokens"),
        (lengths.LognormalTokens(0.0, 60.0), "log-normal, median 1 token, sigma 60"),
        (lengths.UniformTokens(1, 100), "1 to 100 tokens, all alike"),
        (lengths.ExponentialTokens(24.5, 99), "exponential, mean 24.5 tokens, at most 99"),
        (
            lengths.ParetoTailTokens(HUNDRED, 300),
            "log-normal, mean 100 tokens, CV 1, above 300 tokens a Pareto tail of index 2.2",
        ),
        (
            lengths.IndependentLengths(lengths.FixedTokens(9), lengths.FixedTokens(2)),
            "prompts always 9 tokens; outputs always 2 tokens",
        ),
        (
            lengths.EmpiricalLengths("t.csv", ((1, 2), (3, 4)), 0.1),
            "lengths drawn from the 2 pairs of t.csv, each times a log-normal factor of sigma 0.1",
        ),
        (arrivals.ConstantArrivals(4), "evenly spaced arrivals at 4/s"),
        (arrivals.PoissonArrivals(0.5), "Poisson arrivals at 0.5/s"),
        (arrivals.GammaArrivals(10, 2), "arrivals at 10/s with gamma gaps, CV 2"),
        (arrivals.WeibullArrivals(10, 2), "arrivals at 10/s with Weibull gaps, CV 2"),
        (
            modulated.OnOffArrivals(4),
            "arrivals at 4/s on average, in bursts of 11.3 s, then 46.5 s of silence",
        ),
        (
            modulated.DiurnalArrivals(arrivals.PoissonArrivals(4)),
            "Poisson arrivals at 4/s on average, following a sine wave whose peak is 2.2 times its "
            "trough over 24 h",
        ),
        (
            modulated.ramp_arrivals(1, 1, 10, period_s=60),
            "Poisson arrivals at 5.5/s on average, following a line from 1 to 10 over 60 s",
        ),
        (modulated.Steps((1.0, 0.5)), "2 steps of relative rates 0.5 to 1"),
        (pauses.ExponentialPause(2), "exponential, mean 2 s"),
        (pauses.LognormalPause(3, 0), "always 3 s"),
        (
            pauses.MixedPause(pauses.LognormalPause(1), pauses.LognormalPause(120), 0.15),
            "log-normal, median 1 s, sigma 1.5, but 15 % of them log-normal, median 120 s, "
            "sigma 1.5",
        ),
        (
            prefixes.PrefixGroups(8, 64),
            "shared prefixes of 64 tokens in 8 groups (Zipf exponent 1)",
        ),
    ],
)
def test_a_distribution_says_what_it_draws(drawn: object, said: str) -> None:
    assert describe(drawn) == said


def test_a_class_that_says_nothing_is_named() -> None:
    class Bursts:
        """Of a user's file."""

    assert describe(Bursts()) == "by Bursts"


@pytest.mark.parametrize("module", [lengths, arrivals, modulated, pauses, prefixes])
def test_every_distribution_declares_its_description(module: object) -> None:
    of_module = [kind for kind in vars(module).values() if isinstance(kind, type)]
    for kind in of_module:
        draws = any(hasattr(kind, name) for name in ("sample", "gaps_s", "factors", "block_ids"))
        if draws and hasattr(kind, "__dataclass_fields__"):
            assert {"describe", "phrase"} & vars(kind).keys(), kind.__name__


def test_specifications_say_all_of_it() -> None:
    pairs = lengths.IndependentLengths(lengths.FixedTokens(9), lengths.FixedTokens(2))
    poisson = arrivals.PoissonArrivals(4)
    spec = WorkloadSpec(1_000, poisson, pairs, prefixes.PrefixGroups(8, 64))
    assert spec.describe() == (
        "1,000 requests; Poisson arrivals at 4/s; prompts always 9 tokens; outputs always 2 "
        "tokens; shared prefixes of 64 tokens in 8 groups (Zipf exponent 1)"
    )
    loop = generate(replace(spec, requests=6, arrivals=None, prefixes=None), 0)
    sent = sent_by_users(loop, 3, think=pauses.ExponentialPause(2), rounds=2)
    assert sent.notes == (
        "6 requests; prompts always 9 tokens; outputs always 2 tokens; seed 0",
        "sent by 3 users, each waits for every answer (exponential, mean 2 s, seed 0)",
    )
    for conversations in (multi_turn(1, poisson, HUNDRED, 9_000), agentic(5, poisson)):
        said = conversations.describe()
        assert not REPR.search(said)
        assert " turns, CV " in said
    assert "1 conversation, Poisson arrivals at 4/s" in multi_turn(1, poisson, HUNDRED).describe()


@pytest.mark.parametrize(
    "options",
    [
        ("--requests", 9),
        ("--arrivals", "gamma:cv=2", "--prompt-tokens", "pareto", "--prefix-groups", 4),
        ("--arrivals", "mmpp2", "--diurnal", "--output-tokens", "exponential"),
        ("--structure", "multi-turn"),
        ("--structure", "agentic", "--arrivals", "weibull"),
        ("--closed-loop", 3, "--each", 3),
    ],
)
def test_no_note_of_a_trace_is_code(tmp_path: Path, options: tuple[object, ...]) -> None:
    out = tmp_path / "trace.jsonl"
    done = servetwin("workload", "generate", *options, "--out", out)
    assert done.code == 0, done.err
    (said, *_) = read_trace(out).notes
    assert said.endswith("; seed 0")
    assert not REPR.search(said)
    assert not REPR.search(done.out + done.err)


def test_a_scenario_of_the_dashboard_is_described() -> None:
    workload = ScenarioFile().workload.model_copy(update={"requests": 10})
    (said,) = workload.trace(3).notes
    assert said == (
        "10 requests; Poisson arrivals at 10/s; prompts log-normal, mean 496 tokens, CV 1; outputs "
        "log-normal, mean 198 tokens, CV 1; seed 3"
    )
    assert generate(workload._spec(), 3).notes == (said,)
