"""Graphs of CUDA: on a GPU the same tokens as without, and one wait a step."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from servetwin.engine.kernels import graphs as module
from servetwin.engine.kernels.graphs import CudaGraphs, cuda_graphs
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.model_config import ExpertConfig
from servetwin.engine.sampling.token_state import TokenState
from servetwin.policies.batch import Batch, ScheduledSequence
from servetwin.policies.protocols import KVLayout
from tests.engine.core.test_runner import (
    GREEDY,
    Driver,
    RecordingRunner,
    make_sequences,
    run_alone,
    run_together,
)
from tests.support.engine_oracle import CONFIG, NEW_TOKENS, PROMPT_TOKENS, PROMPTS
from tests.support.triton_device import HAS_CUDA

MOST_TOKENS = PROMPT_TOKENS + NEW_TOKENS
on_gpu = pytest.mark.skipif(not HAS_CUDA, reason="needs a CUDA device")
CUDA = torch.device("cuda")


@pytest.mark.parametrize(
    ("changed", "device", "captured"),
    [
        ({}, "cuda", True),
        ({"attention": "triton"}, "cuda", True),
        ({"attention": "per-sequence"}, "cuda", False),
        ({"graphs": False}, "cuda", False),
        ({"tensor_parallel": 2}, "cuda", False),
        ({}, "cpu", False),
    ],
)
def test_what_can_be_captured(changed: dict[str, Any], device: str, captured: bool) -> None:
    pytest.importorskip("triton")
    found = cuda_graphs(Computation(**changed), CONFIG, torch.device(device))
    assert (found is not None) == captured


def test_without_triton_nothing_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "has_triton", lambda: False)
    assert cuda_graphs(Computation(), CONFIG, CUDA) is None


def test_experts_are_not_captured() -> None:
    mixture = replace(CONFIG, experts=ExpertConfig(4, 2, 64))
    assert cuda_graphs(Computation(), mixture, CUDA) is None


def captured_runner(**options: Any) -> RecordingRunner:
    runner = RecordingRunner(device="cuda", dtype="float32", **options)
    runner.capture_decodes(CudaGraphs(), 4, MOST_TOKENS)
    return runner


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("layout", ["paged", "contiguous"])
@pytest.mark.parametrize("run", [run_alone, run_together])
def test_graphs_of_a_gpu_change_no_token(layout: KVLayout, run: Any) -> None:
    eager = RecordingRunner(device="cuda", dtype="float32", layout=layout, attention="per-sequence")
    expected, expected_logits = run(Driver(eager))
    tokens, logits = run(Driver(captured_runner(layout=layout)))
    assert tokens == expected
    assert (logits - expected_logits).abs().max() <= 1e-4


@pytest.mark.gpu
@on_gpu
def test_a_captured_step_makes_the_host_wait_only_for_its_tokens() -> None:
    runner, seqs = captured_runner(), make_sequences()
    states = {str(i): TokenState([*prompt, 1], GREEDY) for i, prompt in enumerate(PROMPTS)}
    prompts = [ScheduledSequence(seq, 0, PROMPT_TOKENS, yields_token=True) for seq in seqs]
    runner.logits(Batch(prompts), states)
    steps = [
        Batch([ScheduledSequence(seq, PROMPT_TOKENS, 1, yields_token=True) for seq in seqs[:rows]])
        for rows in (1, 3, 4)
    ]
    torch.cuda.set_sync_debug_mode("error")  # A step that makes the host wait raises.
    try:
        rows = [len(runner.logits(batch, states)) for batch in steps]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert rows == [1, 3, 4]
