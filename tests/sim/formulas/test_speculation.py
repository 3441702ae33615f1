"""Closed forms of speculation, streaming and cascades."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.step_times.acceptance import Chain
from servetwin.sim.step_times.roofline.formats import BF16
from servetwin.sim.techniques.drafting import SpeculativeDecoding
from servetwin.sim.techniques.memory import WeightOffload
from servetwin.sim.techniques.setup import Setup
from servetwin.workloads.errors import PolicyError
from tests.support.acceptance import mean_tokens_per_pass
from tests.support.decoding_techniques import base, gain, ideal
from tests.support.formulas.speculation import (
    best_drafts,
    drafted_pass_s,
    needed_alpha,
    period,
    plain_step_s,
    speed_up,
    streamed_pass_s,
)
from tests.support.formulas.techniques import routed_cost, small_first_cost


# Closed forms
@pytest.mark.parametrize("wanted", [1.0, 1.5, 2.0, 2.4])
def test_the_needed_acceptance_makes_the_wanted_speed_up(wanted: float) -> None:
    alpha = needed_alpha(wanted, 4, 0.05)
    tokens = sum(alpha**accepted for accepted in range(5))
    assert tokens / (4 * 0.05 + 1) == pytest.approx(wanted)


def test_twice_as_fast_takes_the_printed_acceptance() -> None:
    assert round(needed_alpha(2.0, 4, 0.05), 4) == 0.6222
    assert needed_alpha(0.5, 4, 0.05) == 0.0


def test_a_speed_up_beyond_accepting_everything_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"4.5 is not possible with 4 drafts.*makes 4.16667"):
        needed_alpha(4.5, 4, 0.05)


@pytest.mark.parametrize(("draft", "verify"), [(1.0, 3.0), (3.0, 1.0), (2.0, 2.0)])
def test_a_pipelined_pass_takes_the_longer_part(draft: float, verify: float) -> None:
    assert period(draft, verify, pipelined=True) == max(draft, verify)
    assert period(draft, verify, pipelined=False) == draft + verify
    gains = [speed_up(3.0, 4, draft / 4, verify, pipelined) for pipelined in (True, False)]
    assert gains == [3.0 / max(draft, verify), 3.0 / (draft + verify)]


@pytest.mark.parametrize(("alpha", "draft_share"), [(0.8, 0.05), (0.6, 0.02), (0.9, 0.2)])
def test_more_drafts_gain_up_to_an_optimum_within(alpha: float, draft_share: float) -> None:
    gains = [speed_up((1 - alpha ** (g + 1)) / (1 - alpha), g, draft_share) for g in range(1, 33)]
    best = best_drafts(alpha, draft_share, most=32)
    assert 1 < best < 32
    assert all(a < b for a, b in pairwise(gains[:best]))
    assert all(a > b for a, b in pairwise(gains[best - 1 :]))


def test_the_roofline_has_an_optimum_within_too() -> None:
    gains = [
        gain(SpeculativeDecoding(alpha=0.8, drafts=g, draft="tinyllama-1.1b"), base(), 4, 500)
        for g in range(1, 13)
    ]
    best = int(np.argmax(gains))
    assert 0 < best < 11
    assert gains[best] > 1


@pytest.mark.parametrize(
    ("streamed_gb", "law", "tokens_per_s"),
    [
        (7.7, None, "0.5195"),
        (7.7 - 3.5, None, "0.9524"),
        (7.7 - 0.5, None, "0.5556"),
        (7.7 - 0.5, Chain(0.6, 4), "1.2809"),
        (7.7 - 0.5, Chain(0.8, 4), "1.8676"),
        (7.7 - 0.5, Chain(0.8, 8), "2.4050"),
    ],
)
def test_passes_that_stream_their_weights_have_a_speed_limit(
    streamed_gb: float, law: Chain | None, tokens_per_s: str
) -> None:
    """Llama-2-13B in 7.7 GB, storage of 4 GB/s; the draft is resident and hidden.

    Attention is not hidden by the roofline: microseconds of a pass of seconds.
    """
    pass_s = streamed_pass_s(7.7e9, 7.7e9 - streamed_gb * 1e9, 4e9)
    tokens = mean_tokens_per_pass(law) if law else 1.0
    assert f"{tokens / pass_s:.4f}" == tokens_per_s

    model = find_model("llama-2-13b")
    stored = replace(BF16, weight_bytes=7.7e9 / model.params(), stored_as="small")
    phone = Setup.of(replace(ideal(model), prefill=stored, decode=stored))
    streaming = WeightOffload(resident_gb=7.7 - streamed_gb, gb_per_s=4).apply(phone)
    if law is None:
        assert plain_step_s(streaming.deployment, 1, 0) == pytest.approx(pass_s, rel=1e-5)
        return
    technique = SpeculativeDecoding(
        alpha=law.alpha, drafts=law.drafts, draft="tinyllama-1.1b", placement="overlapped"
    )
    drafting = technique.apply(streaming).deployment
    assert drafted_pass_s(drafting, law.rows, 1, 0) == pytest.approx(pass_s, rel=1e-5)


def test_all_weights_streamed_take_the_printed_time() -> None:
    assert streamed_pass_s(7.7e9, 0, 4e9) == 1.925
    assert streamed_pass_s(7.7e9, 8e9, 4e9) == 0


def test_costs_of_cascades() -> None:
    """A router of 1 %, a small model of 10 %, six requests in ten are easy."""
    assert routed_cost(small=0.1, small_share=0.6, router=0.01) == pytest.approx(0.47)
    assert small_first_cost(small=0.1, kept_share=0.6) == pytest.approx(0.50)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 0.2))
def test_routing_costs_less_than_trying_where_the_router_is_cheaper_than_failures(
    small: float, share: float, router: float
) -> None:
    routed, tried = routed_cost(small, share, router), small_first_cost(small, share)
    assert tried - routed == pytest.approx(small * (1 - share) - router)
