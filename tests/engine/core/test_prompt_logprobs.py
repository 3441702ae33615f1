"""Logprobs of prompts, whatever the scheduler does with their chunks."""

from dataclasses import replace

import pytest

from servetwin.engine.core.core import EngineCore
from servetwin.engine.core.messages import TokenEvent
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.sampling.token_state import TokenLogprobs
from servetwin.policies.batch import Batch, ScheduledSequence
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.sequence import Sequence

pytest.importorskip("torch")

import torch

from servetwin.engine.core.runner import Runner
from servetwin.engine.drafting.drafts import Drafts
from servetwin.engine.models.model_config import model_preset
from servetwin.engine.sampling.token_state import token_state
from tests.support.speculative_engine import DRAFTS, POLICIES, engine_core, speculative

PROMPT = list(range(300, 317))
PARAMS = SamplingParams(6, ignore_eos=True, logprobs=2, prompt_logprobs=2)
SMALL = PolicyConfig(kv_tokens=96, block_tokens=4, max_model_len=64, max_seqs=4, token_budget=64)
MODES = {
    "whole": SMALL,
    "chunks": replace(SMALL, batching="chunked", token_budget=5),
    "single-rows": replace(SMALL, batching="chunked", token_budget=1, max_seqs=1),
    "preempted": replace(SMALL, batching="unified", kv_tokens=44),
    "cached": replace(SMALL, prefix_cache=True),
    "static": replace(SMALL, batching="static", wait_limit_s=0.0),
    "contiguous": replace(SMALL, kv="contiguous", kv_tokens=256),
}


def runner_of(config: PolicyConfig) -> Runner:
    memory = build_scheduler(config).memory
    return Runner(
        replace(model_preset("tiny"), tie_embeddings=False),
        layout=memory.layout,
        kv_tokens=memory.capacity_tokens,
        block_tokens=memory.block_tokens,
        weight_std=0.06,
    )


def exact() -> list[torch.Tensor]:
    """The log-softmax after each token of the prompt: a prompt of its own for every place."""
    runner, said = runner_of(SMALL), []
    for tokens in range(1, len(PROMPT)):
        seq = Sequence("r", 0.0, tokens, 1)
        seq.blocks = list(range(-(-tokens // 4)))
        states = {"r": token_state(PROMPT[:tokens], SamplingParams(1))}
        logits = runner.logits(Batch([ScheduledSequence(seq, 0, tokens, True)]), states)
        said.append(logits[0].log_softmax(-1))
    return said


@pytest.mark.parametrize("mode", MODES)
def test_every_token_of_a_prompt_has_the_log_softmax_before_it(mode: str) -> None:
    config = MODES[mode]
    core = EngineCore(build_scheduler(config), runner_of(config), prefix_cache=config.prefix_cache)
    plain = replace(PARAMS, logprobs=None, prompt_logprobs=None)
    wants = {"before": plain, "r": PARAMS, "n": replace(PARAMS, n=2, temperature=1.0, seed=1)}
    events: list[TokenEvent] = []
    for name, params in wants.items():
        assert core.add(name, PROMPT, params, 0.0) is None
    while core.unfinished:
        events += [one for one in core.step(0.0) or () if isinstance(one, TokenEvent)]
    firsts: dict[tuple[str, int], TokenEvent] = {}
    for event in events:
        first = firsts.setdefault((event.request_id, event.sample), event)
        assert first is event or event.prompt_logprobs is None
    assert firsts.pop(("before", 0)).prompt_logprobs is None
    assert sorted(firsts) == [("n", 0), ("n", 1), ("r", 0)]
    expected = exact()
    for first in firsts.values():
        assert first.prompt_logprobs is not None
        start, *rest = first.prompt_logprobs
        assert start is None
        for token, scores, one in zip(PROMPT[1:], expected, rest, strict=True):
            assert one is not None
            assert one.chosen == pytest.approx(float(scores[token]), abs=1e-4)
            assert one.top[0][0] == int(scores.argmax())
    if mode == "preempted":
        assert core.stats().preemptions > 0
    assert all(event.cached_tokens == 0 for event in events if event.request_id != "before"), (
        "a part of the prompt was not computed"
    )


@pytest.mark.parametrize("drafts", ["n-grams", "a tree of a noisy copy"])
def test_drafts_change_none(drafts: str) -> None:
    plain = _first_of(replace(POLICIES, batching="chunked", token_budget=16), Drafts())
    drafted = _first_of(replace(speculative(DRAFTS[drafts]), token_budget=100), DRAFTS[drafts])
    assert len(plain) == len(drafted) == len(PROMPT)
    for one, other in zip(plain[1:], drafted[1:], strict=True):
        assert one is not None
        assert other is not None
        assert one.chosen == pytest.approx(other.chosen, abs=1e-4)


def _first_of(policies: PolicyConfig, drafts: Drafts) -> tuple[TokenLogprobs | None, ...]:
    """The logprobs of a prompt beside another one."""
    core = engine_core(policies, drafts)
    params = SamplingParams(12, ignore_eos=True, prompt_logprobs=1)
    for name in ("a", "b"):
        assert core.add(name, PROMPT, params, 0.0) is None
    first: tuple[TokenLogprobs | None, ...] | None = None
    while core.unfinished:
        for event in core.step(0.0) or ():
            assert isinstance(event, TokenEvent)
            if event.request_id == "b" and first is None:
                first = event.prompt_logprobs
    assert first is not None
    return first
