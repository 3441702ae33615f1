"""Servers that are known only by what their clients see: policies, limits, step times."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servetwin.app.calibration.black_box.calibration import BlackBoxCalibrator, bursts
from servetwin.app.calibration.black_box.experiments import (
    SMALL_PROMPT,
    at_once,
    most_held,
    roundest,
    waited_for_others,
)
from servetwin.app.calibration.black_box.identified_limits import IdentifiedLimits
from servetwin.app.calibration.black_box.sender import Allowance, Burst, BurstRequest, BurstSender
from servetwin.loadtest.endpoint import Endpoint
from servetwin.policies.batch import BatchShape
from servetwin.policies.config import PolicyConfig
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.records.metrics import figure
from servetwin.sim.step_times.black_box_steps import ObservedRequest
from servetwin.sim.step_times.profile import StepTimeFit, load_profile
from servetwin.workloads.errors import EndedEarly
from servetwin.workloads.reading import sample_trace
from servetwin.workloads.request import Request
from servetwin.workloads.transform import at_rate
from tests.support.simulated_sender import SimulatedSender

TRUTH = load_profile("base-cpu")
BASE = replace(TRUTH.policy_config(), kv_tokens=32_768)


def calibrator(
    send: SimulatedSender,
    max_s: float = 400.0,
    max_requests: int = 400,
    max_model_len: int | None = 2048,
    slept: list[float] | None = None,
) -> BlackBoxCalibrator:
    return BlackBoxCalibrator(
        Endpoint("http://host:1/v1", "model", prompt="ids", max_model_len=max_model_len),
        Allowance(max_s, max_requests),
        sender=send,
        clock=send.clock,
        sleep=(slept if slept is not None else []).append,
    )


@cache
def calibrated(rounds: int = 1, **settings: Any) -> tuple[BlackBoxCalibrator, PolicyConfig]:
    config = replace(BASE, **settings)
    black_box = calibrator(SimulatedSender(config, TRUTH), max_model_len=config.max_model_len)
    black_box.identify(rounds=rounds)
    return black_box, config


@pytest.mark.parametrize(
    ("settings", "open_"),
    [
        ({"batching": "continuous"}, {"kv_tokens"}),
        ({"batching": "chunked", "token_budget": 512, "max_seqs": 24}, set()),
        ({"batching": "chunked", "token_budget": 100, "max_seqs": 5}, {"kv_tokens"}),
        ({"batching": "continuous", "token_budget": 4096}, {"kv_tokens", "token_budget"}),
        ({"batching": "prefill-first", "max_model_len": 700}, {"kv_tokens", "token_budget"}),
        ({"batching": "continuous", "max_seqs": 1}, {"kv_tokens", "token_budget"}),
        ({"batching": "chunked", "prefix_cache": True}, {"kv_tokens"}),
        ({"batching": "static", "max_seqs": 8}, {"kv_tokens", "token_budget"}),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_policies_are_identified_by_the_order_of_tokens(
    settings: dict[str, Any], open_: set[str]
) -> None:
    black_box, config = calibrated(**settings)
    found = black_box.limits
    assert set(found.not_identified) == open_
    for name, value in found.identified.items():
        true = getattr(config, name)
        if name == "wait_limit_s":
            assert value == pytest.approx(true, rel=0.05)
        elif name in ("token_budget", "kv_tokens"):
            assert value == pytest.approx(true, rel=0.1)
        elif (name, true) != ("batching", "continuous") or value != "chunked":
            assert value == true, name
    assert {"batching", "max_seqs", "prefix_cache", "max_model_len"} <= set(found.identified)


def test_a_memory_that_binds_is_bounded_from_both_sides() -> None:
    black_box, config = calibrated(kv_tokens=8192)
    found = black_box.limits.identified["kv_tokens"]
    assert found == pytest.approx(config.kv_tokens, rel=0.05)
    assert any(f"between {found} and" in note for note in black_box.limits.notes)


class LateSender(SimulatedSender):
    """In every burst of ``of`` requests, the last begins only when the first has ended.

    With ``once`` in the first such burst alone.
    """

    def __init__(
        self, of: int, longer_than: int, once: bool = False, config: PolicyConfig = BASE
    ) -> None:
        super().__init__(config, TRUTH)
        self.of, self.longer_than, self.once = of, longer_than, once

    def __call__(self, requests: Sequence[Request], timeout_s: float) -> Burst:
        burst = super().__call__(requests, timeout_s)
        if len(requests) == self.of and requests[0].prompt_tokens > self.longer_than:
            self.of = 0 if self.once else self.of
            end_s = burst.answers[0].stamps_s[-1]
            late_s = max(0.0, 1e-3 + end_s - burst.answers[-1].stamps_s[0])
            late = tuple(stamp_s + late_s for stamp_s in burst.answers[-1].stamps_s)
            burst.answers[-1] = replace(burst.answers[-1], stamps_s=late)
        return burst


@pytest.mark.parametrize("once", [False, True])
def test_a_memory_limit_that_other_bursts_contradict_is_not_identified(once: bool) -> None:
    black_box = calibrator(LateSender(16, 1500, once))
    black_box.identify(rounds=1)
    assert "kv_tokens" not in black_box.limits.identified
    assert "contradict each other" in black_box.limits.not_identified["kv_tokens"]


def test_a_batch_limit_that_is_not_seen_again_is_not_identified() -> None:
    wide = replace(BASE, max_seqs=64)
    black_box = calibrator(LateSender(32, 0, once=True, config=wide))
    black_box.identify(rounds=0)
    assert "31 of 32 requests ran at once, then 32" in black_box.limits.not_identified["max_seqs"]


@pytest.mark.slow
def test_a_load_like_that_of_the_forecast_follows_the_bursts() -> None:
    """Without it the shares of the load's batches that no burst had are extrapolated."""
    send, trace = SimulatedSender(BASE, TRUTH), sample_trace()
    black_box = calibrator(send)
    black_box.identify(1, trace)
    without = calibrated(batching=BASE.batching)[0].profile().step_time("paged").steps
    assert black_box.profile().step_time("paged").steps > 1.1 * without
    load = max(black_box._sender.rounds[-1], key=len)
    lengths = {request.prompt_tokens for request in trace}
    assert len(load) > 16
    assert {answer.prompt_tokens for answer in load} <= lengths
    assert not any(answer.cached_tokens for answer in load)


@pytest.mark.slow
def test_what_is_learned_predicts_what_the_server_does() -> None:
    black_box, config = calibrated(rounds=2, batching="chunked")
    profile = black_box.profile("learned")
    trace = at_rate(sample_trace(), 3.0)
    truth = replace(config, prefix_cache=False)
    runs = [
        run_once(trace, Scenario(policies, server), seed=seed).summary()
        for policies, server in ((truth, TRUTH), (profile.policy_config(), profile))
        for seed in range(4)
    ]
    for metric, limit in (
        ("output_throughput_tokens_per_s", 0.01),
        ("tpot_s.mean", 0.03),
        ("ttft_s.mean", 0.05),
    ):
        true, predicted = (
            sum(figure(run, metric) or 0.0 for run in half) for half in (runs[:4], runs[4:])
        )
        assert predicted == pytest.approx(true, rel=limit), metric


@pytest.mark.slow
def test_step_times_are_learned_and_carry_their_uncertainty(tmp_path: Path) -> None:
    profile = calibrated(rounds=2, batching="chunked")[0].profile("learned")
    fit = profile.step_time("paged")
    truth, model = TRUTH.step_time("paged").model(), fit.model()
    for shape in (
        BatchShape(1, 50, 1),
        BatchShape(8, 1600, 8),
        BatchShape(16, 16_000, 16),
        BatchShape(0, 0, 0, ((0, 100),)),
        BatchShape(10, 1000, 10, ((256, 200),)),
    ):
        assert model.seconds(shape)[0] == pytest.approx(truth.seconds(shape)[0], rel=0.02)
    assert not profile.is_certain()
    assert len(fit.draws) == 40
    profile.save(tmp_path / "p.json")
    assert load_profile(str(tmp_path / "p.json")) == profile
    engine = json.loads((tmp_path / "p.json").read_text())["engine"]
    assert engine["identified"]["not identified"]["kv_tokens"]
    api = profile.api.model()
    true = TRUTH.api.model()
    latency = true.request_in_s(100) + true.chunk_out_s(1)
    assert api.request_in_s(100) + api.chunk_out_s(1) == pytest.approx(latency, abs=5e-4)


class SilentSender(SimulatedSender):
    """Begins a stream for too long a prompt, and sends nothing."""

    def __call__(self, requests: Sequence[Request], timeout_s: float) -> Burst:
        burst = super().__call__(requests, timeout_s)
        if burst.messages:
            return replace(burst, messages={"no_token": burst.messages["http_4xx"]})
        return burst


@pytest.mark.parametrize("server", [SimulatedSender, SilentSender])
def test_a_context_that_is_not_stated_is_found_by_bisection(server: type[SimulatedSender]) -> None:
    black_box = calibrator(server(replace(BASE, max_model_len=300), TRUTH), max_model_len=None)
    black_box.identify(rounds=0)
    assert 290 <= black_box.limits.identified["max_model_len"] <= 300
    assert any("are rejected (HTTP 400: too long)" in note for note in black_box.limits.notes)


def test_it_keeps_its_limits_and_says_what_they_cost() -> None:
    send = SimulatedSender(BASE, TRUTH)
    black_box = calibrator(send, max_requests=60)
    black_box.identify(2)
    assert send.requests <= 60
    assert "it needs 32 requests" in black_box.limits.not_identified["max_seqs"]
    send = SimulatedSender(BASE, TRUTH)
    black_box = calibrator(send, max_s=40.0)
    black_box.identify(2)
    assert send.elapsed_s < 60
    assert black_box.limits.not_identified["kv_tokens"]
    assert not black_box.stopped
    assert black_box.profile("learned").step_time("paged").steps > 100


def test_a_batch_that_may_take_too_long_is_not_tried() -> None:
    """At 64 a step takes 0.2 s; of 128, twice as long may be true, and they have 160 tokens."""
    slow = {"constant": 0.02, "decode_sequences": 0.003}
    profile = TRUTH.model_copy(update={"layouts": {"paged": StepTimeFit(coefficients=slow)}})
    config = replace(BASE, max_seqs=256, token_budget=2048, kv_tokens=100_000)
    black_box = calibrator(SimulatedSender(config, profile), max_s=240.0, max_requests=2000)
    black_box.identify(rounds=0)
    why = black_box.limits.not_identified["max_seqs"]
    assert why.startswith("128 requests at once would take about 6")
    assert black_box.limits.policies().max_seqs >= 64


INTERRUPTED = Burst([], interrupted=True)
GONE = Burst([], {"connect": "refused"})
BUSY = Burst([], {"http_429": "HTTP 429 (Retry-After: 7): busy"})
BROKEN = Burst([], {"broken_stream": "ended"})


@pytest.mark.parametrize("trouble", [INTERRUPTED, GONE])
def test_what_was_learned_before_an_end_is_kept(trouble: Burst) -> None:
    send = SimulatedSender(BASE, TRUTH)
    send.troubles = dict.fromkeys(range(31, 200), trouble)
    black_box = calibrator(send)
    black_box.identify(2)
    assert black_box.stopped
    assert send.elapsed_s > 0
    assert black_box.limits.not_identified["kv_tokens"].startswith("not tried: ")
    assert [note for note in black_box.limits.notes if note.endswith(black_box.stopped)]
    assert black_box.profile("learned").step_time("paged").steps > 100


def test_ctrl_c_before_anything_is_learned_is_reported() -> None:
    send = SimulatedSender(BASE, TRUTH)
    send.troubles = dict.fromkeys(range(4, 9), INTERRUPTED)
    black_box = calibrator(send)
    black_box.identify(2)
    with pytest.raises(EndedEarly, match=r"calibration \(interrupted\): \d+ measured steps"):
        black_box.profile("learned")
    send = SimulatedSender(BASE, TRUTH)
    send.troubles = {1: GONE}
    with pytest.raises(EndedEarly, match="does not answer a first request"):
        calibrator(send).identify(2)


def test_a_round_has_full_batches_of_short_and_of_long_prompts() -> None:
    """Half of the context, where there is time for a batch of them."""
    send = SimulatedSender(BASE, TRUTH)
    sender = BurstSender(send, Allowance(400.0, 400), np.random.default_rng(0), send.clock)
    sender.send([BurstRequest(SMALL_PROMPT, 8)])
    limits = IdentifiedLimits(longest=2048, identified={"max_seqs": 16})
    full = [burst for burst in bursts(sender, limits) if len(burst) == 16]
    longest = [max(request.prompt_tokens for request in burst) for burst in full]
    assert (longest[0] <= SMALL_PROMPT, longest[-1] > 512) == (True, True)
    assert longest[-1] <= 1024


def test_a_busy_server_is_waited_for_as_it_asks() -> None:
    send, slept = SimulatedSender(BASE, TRUTH), list[float]()
    send.troubles = {3: BUSY, 4: BUSY}
    black_box = calibrator(send, slept=slept)
    black_box.identify(rounds=1)
    assert slept == [7.0, 7.0]
    assert black_box.limits.identified["max_seqs"] == 16


def test_an_experiment_that_fails_leaves_the_others() -> None:
    send = SimulatedSender(BASE, TRUTH)
    names = ("batching", "token_budget")
    send.troubles = {12: BROKEN}  # two to warm up, nine lone prompts: the scheduler's
    black_box = calibrator(send)
    black_box.identify(rounds=1)
    assert set(names) <= set(black_box.limits.not_identified)
    assert "broken_stream" in black_box.limits.not_identified["batching"]
    assert black_box.limits.identified["max_seqs"] == 16
    assert black_box.limits.policies().batching == "chunked"


@pytest.mark.parametrize(
    ("low", "high", "value"),
    [
        (236, 257, 256), (440.2, 513, 512), (95, 105, 96), (97, 100, 98), (3.2, 4.5, 4),
        (5.5, 6.5, 6),
    ],
)  # fmt: skip
def test_the_roundest_number(low: float, high: float, value: int) -> None:
    assert roundest(low, high) == value


def test_counts_of_what_ran() -> None:
    a, b = ObservedRequest(0.0, 10, (1.0, 2.0, 3.0)), ObservedRequest(0.0, 20, (2.5, 4.0))
    late = ObservedRequest(0.0, 5, (3.5,))
    assert at_once([a, b]) == 2
    assert most_held([a, b]) == 10 + 1 + 20
    assert not waited_for_others([a, b])
    assert waited_for_others([a, b, late])
    assert at_once([ObservedRequest(0.0, 5, ())]) == 0


def test_it_says_what_was_identified_and_what_was_not() -> None:
    limits = IdentifiedLimits(longest=100)
    limits.unknown("no time", "max_seqs", "kv_tokens")
    limits.found(max_seqs=4)
    limits.unknown("again", "max_seqs")
    assert limits.as_dict()["not identified"] == {"kv_tokens": "no time"}
    assert limits.policies().kv_tokens >= 4 * 100
    assert "  max_seqs        4" in limits.lines()


def test_the_note_about_prompts_is_the_last() -> None:
    limits = IdentifiedLimits(longest=10, notes=["first"], prompts="prompts are text")
    assert limits.as_dict()["notes"] == ["first", "prompts are text"]
    assert limits.lines()[-1] == "note: prompts are text"
