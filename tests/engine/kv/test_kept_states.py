"""Whatever the policies decide, a state goes on from all tokens before it, and from no others."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from servetwin.engine.core.core import EngineCore
from servetwin.engine.core.messages import RequestFailed
from servetwin.engine.core.step_input import StepInput
from servetwin.engine.kv.state_store import StateRun, StateStore
from servetwin.engine.models.model_config import StateSpaceConfig, model_preset
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.sampling.token_state import NewToken
from servetwin.policies.batch import Batch
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import CheckedMemory
from servetwin.workloads.models.description import StateSizes
from tests.support.effort import examples
from tests.support.fake_engine import POISON

LAYERS = (0, 1)
MODEL = replace(
    model_preset("tiny"),
    state_space=StateSpaceConfig(LAYERS, StateSizes(1, 1, 1, 1, kernel=2)),
)
Kept = dict[tuple[int, int], list[int]]
"""The tokens that a state has taken in, by layer and block."""


class TokenStates:
    """An executor whose states are the tokens before them; it raises after all layers for a batch
    with ``POISON``, and now and then for another.
    """

    def __init__(self, store: StateStore, fails_each: int) -> None:
        self._store, self._fails_each = store, fails_each
        self._kept: Kept = {}
        self._steps = 0
        self.wrong: list[tuple[str, list[int] | None, list[int]]] = []
        """States of other tokens: an error here would only split the step."""

    def execute(self, batch: Batch, states: Mapping[str, Any]) -> dict[str, list[NewToken]]:
        step = StepInput.of(batch, states)
        plan = self._store.plan(step.entries)
        owners = [
            (entry.seq.output_id, entry.start + row)
            for entry in step.entries
            for row in range(entry.rows)
        ]
        new: Kept = {}
        for layer in LAYERS:
            for run in plan.runs[layer]:
                self._take_in(layer, run, owners, states, new)
        self._steps += 1
        poisoned = any(POISON in states[entry.seq.output_id].token_ids for entry in batch.entries)
        fails = self._fails_each and self._steps % self._fails_each == 0
        if poisoned or (fails and len(batch.entries) > 1):
            raise RuntimeError("after all layers")
        self._kept |= new
        return {
            name: [NewToken((sum(states[name].token_ids) * 7 + place) % 90)]
            for entry in batch.entries
            if entry.yields_token and entry.tokens
            for place, name in enumerate(entry.seq.output_ids())
        }

    def _take_in(
        self, layer: int, run: StateRun, owners: list[tuple[str, int]],
        states: Mapping[str, Any], new: Kept,
    ) -> None:  # fmt: skip
        chunk = isinstance(run.rows, slice)
        rows = range(run.rows.start, run.rows.stop) if isinstance(run.rows, slice) else run.rows
        parts = [list(rows)] if chunk else [[int(row)] for row in rows]
        for place, part in enumerate(parts):
            name, first = owners[part[0]]
            before: list[int] | None = []
            if run.sources is not None:
                source = layer, int(run.sources[place])
                before = new.get(source, self._kept.get(source)) if chunk else self._kept[source]
            tokens = states[name].token_ids
            if before != tokens[:first]:
                self.wrong.append((name, before, tokens[:first]))
            new[layer, int(run.targets[place])] = tokens[: first + len(part)]

    def copy_blocks(self, copies: list[tuple[int, int]]) -> None:
        before = dict(self._kept)
        for layer in LAYERS:
            for source, target in copies:
                self._kept[layer, target] = before.get((layer, source), [])


@st.composite
def configs(draw: st.DrawFn) -> PolicyConfig:
    batching = draw(
        st.sampled_from(["static", "continuous", "chunked", "prefill-first", "unified"])
    )
    chunks = batching in ("continuous", "chunked", "prefill-first")
    return PolicyConfig(
        batching,
        kv="grouped",
        kv_groups=draw(st.sampled_from(["state", "full,state", "2xstate,full"])),
        prefix_cache=draw(st.booleans()),
        kv_tokens=draw(st.sampled_from([128, 192, 512])),
        block_tokens=draw(st.sampled_from([1, 4, 8])),
        max_model_len=40,
        max_seqs=draw(st.sampled_from([2, 5])),
        token_budget=draw(st.sampled_from([8, 13, 64])),
        wait_limit_s=0.0,
    ).changed(**{"prompt_blocks": draw(st.sampled_from(["whole", "chunk"]))} if chunks else {})


@settings(max_examples=examples(60))
@given(config=configs(), seed=st.integers(0, 10**6), fails_each=st.sampled_from([0, 3]))
def test_a_state_goes_on_from_the_tokens_before_it(
    config: PolicyConfig, seed: int, fails_each: int
) -> None:
    rng = np.random.default_rng(seed)
    scheduler = build_scheduler(config)
    memory = scheduler.memory
    store = StateStore(
        MODEL, memory.capacity_tokens, memory.block_tokens, dtype=torch.float32,
        device=torch.device("cpu"),
    )  # fmt: skip
    executor = TokenStates(store, fails_each)
    core = EngineCore(scheduler, executor, prefix_cache=config.prefix_cache)
    shared = rng.integers(0, 90, 20).tolist()
    waiting, poisoned = 12, set[str]()
    while waiting or core.unfinished:
        for _ in range(min(waiting, int(rng.choice([0, 0, 1, 4])))):
            waiting -= 1
            own = rng.integers(0, 90, int(rng.choice([1, 2, 3, 12]))).tolist()
            prompt = shared[: int(rng.choice([0, 8, 16, 20]))] + own
            if rng.random() < 0.15:
                poisoned.add(f"r{waiting}")
                prompt.append(POISON)
            params = SamplingParams(
                int(rng.integers(1, 8)), n=int(rng.integers(1, 3)), ignore_eos=True
            )
            core.add(f"r{waiting}", prompt, params, core.clock())
        events = core.step(core.clock()) or []
        for event in events:
            assert isinstance(event, RequestFailed) == (event.request_id in poisoned), event
        assert isinstance(memory, CheckedMemory)
        memory.check(scheduler.holders())
        assert not executor.wrong
