"""An engine without a model: the real core over an executor that counts upwards."""

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from servetwin.engine.core.core import CoreClock, EngineCore
from servetwin.engine.core.core_process import BuildCore
from servetwin.engine.sampling.sampling_params import EOS_ID
from servetwin.engine.sampling.token_state import NewToken, TokenLogprobs, TokenState
from servetwin.policies.batch import Batch
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig

VOCAB_SIZE = 1000
POISON = 999
"""A prompt with this token makes the step fail that computes it."""
STUMBLE = 899
"""A prompt of this token alone makes the step after the first token fail."""


def sampled_outputs(batch: Batch) -> list[str]:
    """Return the names of the answers that get a token."""
    return [
        name for entry in batch.entries if entry.yields_token for name in entry.seq.output_ids()
    ]


class FakeExecutor:
    """The next token is the last one plus one; a step takes ``step_s``."""

    def __init__(self, step_s: float = 0.0) -> None:
        self._step_s = step_s

    def execute(self, batch: Batch, states: Mapping[str, Any]) -> dict[str, list[NewToken]]:
        time.sleep(self._step_s)
        sampled = sampled_outputs(batch)
        if any(POISON in states[request_id].token_ids for request_id in sampled):
            raise RuntimeError("poisoned")
        if any(states[request_id].token_ids == [STUMBLE, STUMBLE + 1] for request_id in sampled):
            raise RuntimeError("stumbled")
        return {name: [_new_token(states[name])] for name in sampled}

    def copy_blocks(self, copies: list[tuple[int, int]]) -> None:
        """There is nothing to copy."""


def _new_token(state: TokenState) -> NewToken:
    """The next token; its logprob is -0.5, and those after it are likely too."""
    token_id, top = _next(state.token_ids[-1]), state.params.logprobs
    if top is None:
        return NewToken(token_id)
    likely = tuple((token_id + place, -0.5 - place) for place in range(top))
    said = TokenLogprobs(-0.5, likely)
    if state.params.prompt_logprobs is None:
        return NewToken(token_id, logprobs=said)
    prompt = (None, *(TokenLogprobs(-0.25, ((one, -0.25),)) for one in state.token_ids[1:]))
    return NewToken(token_id, logprobs=said, prompt_logprobs=prompt)


def _next(token_id: int) -> int:
    return token_id + 1 if token_id + 1 < POISON else EOS_ID


def fake_core(
    config: PolicyConfig, step_s: float = 0.0, clock: CoreClock | None = None
) -> EngineCore:
    """A core over a ``FakeExecutor``."""
    return EngineCore(
        build_scheduler(config),
        FakeExecutor(step_s),
        prefix_cache=config.prefix_cache,
        clock=clock or CoreClock(),
    )


def build_fake(config: PolicyConfig, step_s: float = 0.0) -> BuildCore:
    """The same, for a core process."""
    return partial(_build, config, step_s)


def _build(
    config: PolicyConfig, step_s: float, clock: CoreClock
) -> tuple[EngineCore, dict[str, Any]]:
    core = fake_core(config, step_s, clock)
    facts = {
        "model": "fake",
        "vocab_size": VOCAB_SIZE,
        "max_model_len": config.max_model_len,
        "kv_tokens": core.scheduler.memory.capacity_tokens,
    }
    return core, facts
