"""Mixtures of experts: what is alike on both sides, what a step reads, and what is refused."""

from itertools import pairwise
from typing import Literal

import pytest

from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.catalogue.layers import Dense, Experts
from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.techniques.experts import MixtureOfExperts
from servetwin.workloads.errors import PolicyError
from tests.support.attention_techniques import LLAMA, applied, ideal, layers_of, step_s
from tests.support.command import servetwin

ROUTERS = 32 * 4096 * 8
"""Weights that choose among eight experts in every layer."""


def experts_of(model: ModelShape) -> Experts:
    ffn = model.layers[0].ffn
    assert isinstance(ffn, Experts)
    return ffn


def test_experts_of_equal_total_size_have_the_weights_of_the_dense_model() -> None:
    """Of eight experts two are computed: a quarter of the FFN, which has most of the weights."""
    sparse = applied(LLAMA, MixtureOfExperts(compare="total"))
    assert experts_of(sparse).width == 11008 // 8
    assert sparse.params() == LLAMA.params() + ROUTERS
    ffn = 32 * 3 * 4096 * 11008
    assert sparse.active_params() == LLAMA.params() - ffn * 3 / 4 + ROUTERS
    assert applied(LLAMA, MixtureOfExperts()) == sparse


def test_experts_of_equal_active_size_compute_what_the_dense_model_computes() -> None:
    sparse = applied(LLAMA, MixtureOfExperts(compare="active"))
    assert experts_of(sparse).width == 11008 // 2
    assert sparse.active_params() == LLAMA.params() + ROUTERS
    assert sparse.params() == LLAMA.params() + 3 * 32 * 3 * 4096 * 11008 + ROUTERS


def test_less_is_computed_at_equal_total_size_and_as_much_at_equal_active_size() -> None:
    """One token reads what it uses; a batch reads all experts, four times the dense FFN here."""
    dense, total, active = (
        ideal(model)
        for model in (
            LLAMA,
            applied(LLAMA, MixtureOfExperts(compare="total")),
            applied(LLAMA, MixtureOfExperts(compare="active")),
        )
    )
    assert step_s(total, 1, 1) < 0.55 * step_s(dense, 1, 1)
    assert step_s(active, 1, 1) == pytest.approx(step_s(dense, 1, 1), rel=1e-3)
    assert step_s(total, 64, 1) == pytest.approx(step_s(dense, 64, 1), rel=1e-3)
    assert step_s(active, 64, 1) > 2 * step_s(dense, 64, 1)


@pytest.mark.parametrize(
    ("tokens", "touched"), [(1, 2), (2, 3.5), (4, 5.46875), (8, 7.1991), (16, 7.9198)]
)
def test_experts_that_a_step_touches(tokens: int, touched: float) -> None:
    ffn = experts_of(applied(find_model("mistral-7b"), MixtureOfExperts(compare="width")))
    assert ffn.touched_experts(tokens) == pytest.approx(touched, abs=5e-5)
    assert ffn.expert_params(4096) == 176_160_768


def test_eight_experts_make_a_mixtral_of_a_mistral() -> None:
    technique = MixtureOfExperts(experts=8, top_k=2, compare="width")
    sparse = applied(find_model("mistral-7b"), technique)
    assert sparse.params() == pytest.approx(46.70e9, abs=5e6)
    assert sparse.active_params() == pytest.approx(12.88e9, abs=5e6)


def test_a_step_of_experts_grows_with_the_batch_while_a_dense_one_is_flat() -> None:
    """Between one token and E / k of them, every token brings its own experts."""
    dense = ideal(layers_of(4))
    experts = MixtureOfExperts(experts=64, top_k=2, expert_width=1376)
    sparse = experts.apply(dense)
    flat = [step_s(dense, batch, 1) for batch in (2, 4, 8, 16)]
    grows = [step_s(sparse, batch, 1) for batch in (2, 4, 8, 16)]
    assert flat[-1] < 1.001 * flat[0]
    assert all(more > 1.2 * less for less, more in pairwise(grows))
    assert step_s(sparse, 2, 1) < step_s(dense, 2, 1) < step_s(sparse, 64, 1)


def test_a_trained_mixture_takes_the_place_of_the_model() -> None:
    """Llama-2-70B and Mixtral, of about equal quality: a fifth of the weights for a token."""
    dense = ideal(find_model("llama-2-70b"))
    sparse = MixtureOfExperts(mixture="mixtral-8x7b").apply(dense)
    assert sparse.deployment.model == find_model("mixtral-8x7b")
    assert sparse.policies.max_model_len == 4096
    used = sparse.deployment.model.active_params() / dense.deployment.model.active_params()
    assert 0.18 < used < 0.2


@pytest.mark.parametrize(("compare", "parts"), [("total", 8), ("active", 2)])
def test_a_mixture_is_compared_with_a_dense_model_of_its_size(
    compare: Literal["total", "active"], parts: int
) -> None:
    mixtral = ideal(find_model("mixtral-8x7b"))
    technique = MixtureOfExperts(compare=compare)
    assert technique.apply(mixtral) == mixtral
    dense = technique.off(mixtral).deployment.model
    assert dense.layers[0].ffn == Dense(width=parts * 14336)
    mine = mixtral.deployment.model
    weights = mine.params() if compare == "total" else mine.active_params()
    assert dense.params() == dense.active_params() == weights - ROUTERS


@pytest.mark.parametrize(
    ("technique", "model", "message"),
    [
        (MixtureOfExperts(experts=4), "mixtral-8x7b", "mixtral-8x7b has no dense FFN to make expe"),
        (MixtureOfExperts(), "mamba-2.8b", "mamba-2.8b has no dense FFN"),
        (MixtureOfExperts(experts=4, top_k=5), "llama-2-7b", "top_k 5 of 4 experts is not possi"),
        (MixtureOfExperts(experts=20_000), "llama-2-7b", "compare=total cuts the 11008 columns of "
         "the FFN of llama-2-7b into 20000; at most 11008"),
        (MixtureOfExperts(mixture="llama-2-7b"), "llama-2-70b", "llama-2-7b has no experts"),
        (MixtureOfExperts(mixture="mixtral-8x7b", expert_width=9), "llama-2-70b",
         "expert_width 9 cannot be set beside mixture=mixtral-8x7b"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_with_the_reason(
    technique: MixtureOfExperts, model: str, message: str
) -> None:
    with pytest.raises(PolicyError) as caught:
        technique.apply(ideal(find_model(model)))
    assert message in str(caught.value)


@pytest.mark.slow
def test_the_report_says_which_models_are_compared() -> None:
    done = servetwin("techniques", "--only", "experts", "--replications", "2")
    said = " ".join(done.out.split())
    assert (
        "experts: llama-2-7b (6.738e9 weights) against llama-2-7b as 8 experts of equal total size "
        "(6.739e9 weights, 3.493e9 for a token)"
    ) in said
