"""Chunks attend alike on every device: what CUDA is given says the same to a CPU."""

from itertools import product

import pytest
import torch
import torch.nn.functional as F

from servetwin.engine.attention import step_attention
from servetwin.engine.attention.step_attention import causal_mask, repeat_heads, takes_fused
from tests.engine.core.test_runner import (
    MAX_LOGIT_ERROR,
    Driver,
    RecordingRunner,
    run_alone,
    run_together,
)
from tests.support.engine_oracle import Oracle, ask_transformers, draw_weights
from tests.support.triton_device import HAS_CUDA


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return ask_transformers(draw_weights())


def attend(rows: int, before: int, *, fused: bool) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(2, 3, rows, 16, generator=generator)
    keys = torch.randn(2, 1, before + rows, 16, generator=generator)
    mask = causal_mask(rows, before, torch.float32, fused=fused)
    repeated = repeat_heads(keys, 3, fused=fused)
    return F.scaled_dot_product_attention(queries, repeated, repeated, attn_mask=mask)


@pytest.mark.parametrize(("rows", "before"), [(1, 0), (5, 0), (5, 1), (3, 40)])
def test_a_row_sees_what_is_before_it_and_itself(rows: int, before: int) -> None:
    expected = attend(rows, before, fused=False)
    torch.testing.assert_close(attend(rows, before, fused=True), expected)


def test_the_device_of_the_store_decides() -> None:
    assert not takes_fused(torch.device("cpu"))
    assert takes_fused(torch.device("cuda"))


def test_prompts_in_chunks_as_cuda_has_them_say_what_transformers_says(
    oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_attention, "takes_fused", lambda device: True)
    runner = RecordingRunner(attention="per-sequence")
    for padding, run in product([0, 3], [run_alone, run_together]):
        tokens, logits = run(Driver(runner, 7, padding))
        assert tokens == oracle.tokens, (padding, run.__name__)
        assert (logits - oracle.logits).abs().max() <= MAX_LOGIT_ERROR


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_CUDA, reason="needs a CUDA device")
@pytest.mark.parametrize(("rows", "before"), [(128, 0), (128, 77), (2048, 2048)])
def test_a_gpu_attends_like_a_cpu(rows: int, before: int) -> None:
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(8, 4, rows, 128, generator=generator)
    keys = torch.randn(8, 1, before + rows, 128, generator=generator)
    found = []
    for fused, device in ((False, "cpu"), (True, "cuda")):
        q, k = queries.to(device, torch.bfloat16), keys.to(device, torch.bfloat16)
        mask = causal_mask(rows, before, torch.bfloat16, fused=fused)
        k = repeat_heads(k, 4, fused=fused)
        found.append(F.scaled_dot_product_attention(q, k, k, attn_mask=mask).float().cpu())
    assert (found[0] - found[1]).abs().max() <= 3e-2
