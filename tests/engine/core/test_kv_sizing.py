"""KV memory from what a trial of the largest steps leaves, by a reader that knows every byte."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from servetwin.engine.core.build import CudaMemory, LargestStep, build_core, kv_tokens_that_fit
from servetwin.engine.core.runner import Runner
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.model_config import model_preset
from servetwin.engine.serve_options import ServeOptions
from servetwin.policies.batch import Batch
from servetwin.policies.config import PolicyConfig
from servetwin.workloads.errors import EngineError
from tests.support.triton_device import HAS_CUDA

TINY = model_preset("tiny")
TOKEN_BYTES = TINY.kv_bytes_per_token(4)
POLICIES = PolicyConfig(max_model_len=96, max_seqs=5, token_budget=64, block_tokens=16)
WEIGHTS, STEP, OTHERS = 900_000, 100_000, 50_000


@dataclass
class KnownMemory(CudaMemory):
    """Weights, steps and other programs of known sizes; the store is what the runner has."""

    runner: Runner
    total: int
    forgotten: bool = False

    def total_bytes(self) -> int:
        return self.total

    def foreign_bytes(self) -> int:
        return OTHERS

    def forget_peak(self) -> None:
        self.forgotten = True

    def peak_bytes(self) -> int:
        assert self.forgotten
        return WEIGHTS + STEP + self.runner.store.bytes


class WatchedRunner(Runner):
    """Keeps the shapes of its steps."""

    def __init__(self, **options: Any) -> None:
        super().__init__(TINY, Computation(device="cpu"), **options)
        self.steps: list[list[tuple[int, int]]] = []

    def execute(self, batch: Batch, states: Any) -> Any:
        self.steps.append([(entry.start, entry.tokens) for entry in batch.entries])
        return super().execute(batch, states)


@pytest.mark.parametrize("layout", ["paged", "contiguous"])
@pytest.mark.parametrize("blocks", [1, 37, 1000])
def test_what_is_left_is_kept_in_whole_blocks(layout: Any, blocks: int) -> None:
    runner = WatchedRunner(layout=layout, kv_tokens=16, block_tokens=16)
    room = WEIGHTS + STEP + OTHERS + (16 * blocks + 5) * TOKEN_BYTES
    memory = KnownMemory(runner, total=room * 10 // 9 + 1)
    assert kv_tokens_that_fit(runner, POLICIES, 0.9, memory) == 16 * blocks
    assert runner.steps == [[(0, 96)], [(0, 1)] * 5]


def test_too_little_is_said_with_the_figures() -> None:
    runner = WatchedRunner(layout="paged", kv_tokens=16, block_tokens=16)
    memory = KnownMemory(runner, total=1_000_000)
    message = r"kv_memory_share: 0.9 of 0.0 GB is less than the 0.0 GB that weights, the largest"
    with pytest.raises(EngineError, match=message):
        kv_tokens_that_fit(runner, POLICIES, 0.9, memory)


def test_the_largest_step_has_the_context_or_the_budget() -> None:
    assert LargestStep.under(POLICIES) == LargestStep(96, 5)
    assert LargestStep.under(replace(POLICIES, token_budget=512)) == LargestStep(512, 5)
    assert LargestStep(10, 5).kv_tokens(16) == 80
    assert LargestStep(10, 1).kv_tokens(16) == 32


def test_a_resized_runner_has_other_slots_and_no_graphs() -> None:
    runner = WatchedRunner(layout="paged", kv_tokens=16, block_tokens=16)
    runner.resize(64)
    assert runner.describe()["kv_tokens"] == 64
    assert runner.store.span_tokens == 16


def test_a_share_is_for_a_gpu() -> None:
    options = ServeOptions(
        "tiny", POLICIES, computation=Computation(device="cpu", kv_memory_share=0.5)
    )
    with pytest.raises(EngineError, match=r"^kv_memory_share: is for one CUDA device without"):
        build_core(options)


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_CUDA, reason="needs a CUDA device")
def test_a_gpu_keeps_what_fits() -> None:
    options = ServeOptions(
        "small", POLICIES, computation=Computation(device="cuda", kv_memory_share=0.5)
    )
    core, facts = build_core(options)
    total = CudaMemory(torch.device("cuda")).total_bytes()
    held = facts["runner"]["kv_bytes"]
    assert 0.3 * total < held < 0.5 * total
    assert facts["kv_tokens"] == core.scheduler.memory.capacity_tokens
