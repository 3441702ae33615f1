"""Law 6 over architectures: in every mode, each says what an independent implementation says."""

from collections.abc import Mapping
from typing import NamedTuple

import pytest
import torch

from servetwin.engine.models.computation import Computation
from servetwin.policies.config import PolicyConfig
from tests.support.engine_oracle import (
    NEW_TOKENS,
    PROMPT_TOKENS,
    PROMPTS,
    SHARED_TOKENS,
    Oracle,
    ask_transformers,
    draw_weights,
)
from tests.support.model_matrix import ALL_MODELS, WINDOW
from tests.support.recorded_core import run_greedy

MAX_LOGIT_ERROR = 1e-4
SIZES: dict[str, float] = {
    "kv_tokens": 1024,
    "block_tokens": 8,
    "max_model_len": 128,
    "wait_limit_s": 0.0,
}
SHORT = {"kv_tokens": 192}
"""Less than the prompts need in the end."""


class Mode(NamedTuple):
    """Policies beside ``SIZES``, and the kind of attention of the decodes."""

    policies: Mapping[str, object]
    attention: str = "auto"


MODES = {
    "static-contiguous": Mode({"batching": "static", "kv": "contiguous"}, "per-sequence"),
    "static-prefix": Mode({"batching": "static", "prefix_cache": True}, "per-sequence"),
    "contiguous": Mode({"kv": "contiguous"}),
    "whole-prefix": Mode({"prefix_cache": True, "block_tokens": 1}),
    "chunked": Mode({"batching": "chunked", "token_budget": 23}, "per-sequence"),
    "preempted": Mode({"batching": "chunked", "token_budget": 23, "prefix_cache": True, **SHORT}),
    "preempted-whole": Mode(SHORT, "per-sequence"),
}
ONE_OF_A_KIND = ("mqa", "qwen2-window", "shared-keys", "mla", "deepseek-v3")
"""Whose keys and values each lie in memory in another way, and run in every mode."""
UNLIKE_MODES = ("static-contiguous", "preempted")
"""Modes with nothing in common, for models that differ in what a row alone undergoes."""
MATRIX = [
    (model, mode)
    for model in ALL_MODELS
    for mode in MODES
    if model in ONE_OF_A_KIND or mode in UNLIKE_MODES
]
MODES["forgetting"] = Mode({"kv": "grouped", "kv_groups": f"kept:{WINDOW}"})
"""For models with the same window in every layer only."""
MATRIX.append(("mistral", "forgetting"))
REPEATED, JOINS = [*PROMPTS, PROMPTS[0]], [0, 0, 0, 2, 9]
"""The last prompt comes when all blocks of the first one are known."""
ABORTED, AT_STEP = 2, 14

_oracles: dict[str, Oracle] = {}


def oracle_of(model: str) -> Oracle:
    if model not in _oracles:
        config = ALL_MODELS[model]
        _oracles[model] = ask_transformers(draw_weights(config=config), config)
    return _oracles[model]


@pytest.mark.parametrize(("model", "mode"), MATRIX, ids=[f"{a}-{b}" for a, b in MATRIX])
def test_greedy_tokens_are_those_of_transformers(model: str, mode: str) -> None:
    policies = PolicyConfig(**{**SIZES, **MODES[mode].policies})  # type: ignore[arg-type]
    computation = Computation(device="cpu", attention=MODES[mode].attention)
    run = run_greedy(
        ALL_MODELS[model],
        policies,
        REPEATED,
        NEW_TOKENS,
        joins=JOINS,
        aborts={ABORTED: AT_STEP},
        computation=computation,
    )
    oracle = oracle_of(model)
    for index, (tokens, logits) in enumerate(zip(run.tokens, run.logits, strict=True)):
        expected, said = index % len(PROMPTS), len(tokens)
        assert said == NEW_TOKENS or (index == ABORTED and said < NEW_TOKENS)
        assert tokens == oracle.tokens[expected][:said]
        assert (logits - oracle.logits[expected, :said]).abs().max() <= MAX_LOGIT_ERROR
    assert len(run.tokens[ABORTED]) > 0
    assert (run.preemptions > 0) == (policies.kv_tokens < SIZES["kv_tokens"])
    if policies.prefix_cache:
        assert run.hit_tokens[1] in (0, SHARED_TOKENS)
        size = policies.block_tokens
        assert run.hit_tokens[4] == (PROMPT_TOKENS - 1) // size * size, "all that a hit may be"
    else:
        assert not any(run.hit_tokens)


@pytest.mark.parametrize("model", ONE_OF_A_KIND)
def test_several_answers_to_a_prompt_are_those_of_transformers(model: str) -> None:
    policies = PolicyConfig(**{**SIZES, **MODES["preempted"].policies, "kv_tokens": 256})  # type: ignore[arg-type]
    run = run_greedy(ALL_MODELS[model], policies, PROMPTS, NEW_TOKENS, answers=2)
    assert run.tokens == run.further == oracle_of(model).tokens
    assert run.preemptions > 0


@pytest.mark.parametrize("model", ALL_MODELS)
def test_each_model_differs_from_the_plain_one_and_is_sure_of_what_it_says(model: str) -> None:
    oracle = oracle_of(model)
    assert not torch.equal(oracle.logits, ask_transformers(draw_weights()).logits)
    best, second = oracle.logits.topk(2, -1).values.unbind(-1)
    assert (best - second).min() > 2 * MAX_LOGIT_ERROR
    assert len({token for tokens in oracle.tokens for token in tokens}) > 24
