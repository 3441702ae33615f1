"""What an engine with drafts says is distributed as the model's own probabilities say.

A decoder with a vocabulary of sixteen, run through its passes: drafting, masks, positions,
rejection and random numbers together. ``test_rejection`` has the rule alone, and what is wrong with
others.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from servetwin.engine.core.runner import Runner
from servetwin.engine.drafting.drafts import Drafts
from servetwin.engine.sampling.sampler import probabilities
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.sampling.token_state import TokenState, token_state
from servetwin.policies.batch import Batch, ScheduledSequence
from servetwin.policies.drafted_decodes import IntArray
from servetwin.policies.sequence import Sequence
from servetwin.sim.step_times.step_time import FloatArray
from tests.support.speculative_engine import NOISY, OTHER, SAME, SIXTEEN, runner_of

DRAWS = 4_000
"""Enough for p-values below 1e-15 where 30 % too many tokens are accepted, or what is rejected is
not taken from what is wanted.
"""
PROMPT = [3, 1, 4, 1, 5]
STD = 0.25
"""Far from uniform: the likeliest pair is forty times as likely as the median one."""
LEAST_P_VALUE = 1e-3
SAMPLED = SamplingParams(8, temperature=1.0, eos_ids=())
CASES = {
    "draft = target": (Drafts("model", (1, 1), seed=SAME), SAMPLED),
    "another model": (Drafts("model", (1, 1), seed=OTHER), SAMPLED),
    "a noisy copy": (Drafts("model", (1, 1, 1), seed=NOISY), SAMPLED),
    "layers": (Drafts("layers", (1, 1)), SAMPLED),
    "n-grams": (Drafts("n-gram", (1, 1)), SAMPLED),
    "unsure": (Drafts("model", (1, 1, 1), seed=NOISY, least_confidence=0.2), SAMPLED),
    "a tree": (Drafts("model", (3, 2), seed=NOISY), SAMPLED),
    "a tree of another model": (Drafts("model", (2, 1), seed=OTHER), SAMPLED),
    "a tree of few tokens": (
        Drafts("model", (3, 2), seed=NOISY),
        replace(SAMPLED, top_k=2, temperature=0.7),
    ),
    "penalties": (
        Drafts("model", (2, 2), seed=NOISY),
        replace(SAMPLED, repetition_penalty=1.7, presence_penalty=0.5),
    ),
}


def first_two(runner: Runner, rows: int, params: SamplingParams, count: int) -> IntArray:
    """The first two tokens of many answers; the prompt's last token begins the first pass."""
    states: dict[str, TokenState] = {}
    seqs = []
    for index in range(count):
        seq = Sequence(str(index), 0.0, len(PROMPT), 8)
        seq.blocks = [0, *range(3 * index + 1, 3 * index + 4)]
        seq.base_computed_tokens = len(PROMPT) - 1
        states[seq.request_id] = token_state(list(PROMPT), replace(params, seed=index))
        seqs.append(seq)
    prompt = ScheduledSequence(seqs[0], 0, len(PROMPT) - 1, yields_token=False)
    runner.execute(Batch([prompt]), states)
    waiting = seqs
    while waiting:
        passes = [ScheduledSequence(s, s.computed_tokens, rows, True) for s in waiting]
        for name, tokens in runner.execute(Batch(passes), states).items():
            states[name].token_ids += [token.token_id for token in tokens]
        for seq in waiting:
            seq.base_generated_tokens = len(states[seq.request_id].token_ids) - len(PROMPT)
            seq.base_computed_tokens = seq.total_tokens - 1
        waiting = [seq for seq in waiting if seq.generated_tokens < 2]
    said = [states[seq.request_id].token_ids[len(PROMPT) :] for seq in seqs]
    return np.array([16 * first + second for first, second, *_ in said])


@torch.inference_mode()
def exact(params: SamplingParams) -> FloatArray:
    """The probabilities of all pairs by the model without drafts."""
    runner = runner_of(Drafts(), SIXTEEN, std=STD, block_tokens=4)
    chances = []
    for token in range(-1, SIXTEEN.vocab_size):
        ids = [*PROMPT, token] if token >= 0 else PROMPT
        seq, state = Sequence("a", 0.0, len(PROMPT), 8), token_state(list(PROMPT), params)
        state.token_ids[:] = ids
        seq.blocks = [0, 1]
        batch = Batch([ScheduledSequence(seq, 0, len(ids), yields_token=True)])
        row = state.row(len(ids) - len(PROMPT))
        chances.append(probabilities(runner.logits(batch, {"a": state}), [row])[0].double())
    table = torch.stack(chances)
    table /= table.sum(1, keepdim=True)
    pairs: FloatArray = (table[0][:, None] * table[1:]).numpy().ravel()
    return pairs


SLOW = ("a tree of few tokens", "penalties")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in CASES]
)
def test_the_first_two_tokens_are_distributed_as_without_drafts(name: str) -> None:
    drafts, params = CASES[name]
    size = 4 * (3 * DRAWS + 1)
    runner = runner_of(drafts, SIXTEEN, std=STD, block_tokens=4, kv_tokens=size)
    pairs = first_two(runner, drafts.tree.rows, params, DRAWS)
    expected = exact(params) * len(pairs)
    seen = np.bincount(pairs, minlength=256)
    assert not seen[expected == 0].any()
    order = np.argsort(expected)
    rare = order[: int(np.searchsorted(np.cumsum(expected[order]), 8)) + 1]
    often = np.setdiff1d(order, rare)
    found = chisquare(
        np.append(seen[often], seen[rare].sum()),
        np.append(expected[often], expected[rare].sum()),
    )
    assert len(often) > 1
    assert found.pvalue > LEAST_P_VALUE
