"""Every architecture says what an independent implementation of it says."""

import pytest
import torch

from engine.models.model_config import ModelConfig
from policies.config import PolicyConfig
from tests.support.engine_oracle import (
    NEW_TOKENS,
    PROMPTS,
    Oracle,
    ask_transformers,
    draw_weights,
)
from tests.support.model_matrix import MODELS
from tests.support.recorded_core import run_greedy

MAX_LOGIT_ERROR = 1e-4
POLICIES = {
    "whole": PolicyConfig(kv_tokens=1024, max_model_len=128),
    "chunked": PolicyConfig("chunked", kv_tokens=1024, max_model_len=128, token_budget=23),
    "contiguous": PolicyConfig("static", kv="contiguous", kv_tokens=1024, max_model_len=128),
}


@pytest.fixture(scope="module", params=list(MODELS.values()), ids=list(MODELS))
def model(request: pytest.FixtureRequest) -> tuple[ModelConfig, Oracle]:
    config: ModelConfig = request.param
    return config, ask_transformers(draw_weights(config=config), config)


@pytest.mark.parametrize("policies", POLICIES.values(), ids=POLICIES)
def test_greedy_tokens_are_those_of_transformers(
    model: tuple[ModelConfig, Oracle], policies: PolicyConfig
) -> None:
    config, oracle = model
    run = run_greedy(config, policies, PROMPTS, NEW_TOKENS)
    assert run.tokens == oracle.tokens
    assert (run.logits - oracle.logits).abs().max() <= MAX_LOGIT_ERROR
    assert len({token for tokens in oracle.tokens for token in tokens}) > 24


def test_each_model_differs_from_the_plain_one(model: tuple[ModelConfig, Oracle]) -> None:
    assert not torch.equal(model[1].logits, ask_transformers(draw_weights()).logits)
