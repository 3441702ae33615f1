"""Chunks attend alike on every device: what CUDA is given says the same to a CPU."""

from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from servetwin.engine.attention import step_attention
from servetwin.engine.attention.step_attention import (
    AttentionBackend,
    causal_mask,
    reads_groups,
    takes_fused,
)
from servetwin.engine.kv.kv_store import KVStore
from servetwin.policies.batch import ScheduledSequence
from servetwin.policies.sequence import Sequence
from tests.engine.core.test_runner import (
    MAX_LOGIT_ERROR,
    Driver,
    RecordingRunner,
    run_alone,
    run_together,
)
from tests.support.engine_oracle import CONFIG, Oracle, ask_transformers, draw_weights
from tests.support.triton_device import HAS_CUDA


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return ask_transformers(draw_weights())


def attend(rows: int, before: int, *, fused: bool) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(2, 3, rows, 16, generator=generator)
    keys = torch.randn(2, 1, before + rows, 16, generator=generator)
    mask = causal_mask(rows, before, torch.float32, fused=fused)
    keys = keys.expand(-1, 1 if fused else 3, -1, -1)
    return F.scaled_dot_product_attention(queries, keys, keys, attn_mask=mask, enable_gqa=fused)


@pytest.mark.parametrize(("rows", "before"), [(1, 0), (5, 0), (5, 1), (3, 40)])
def test_a_row_sees_what_is_before_it_and_itself(rows: int, before: int) -> None:
    expected = attend(rows, before, fused=False)
    torch.testing.assert_close(attend(rows, before, fused=True), expected)


def test_the_device_of_the_store_decides() -> None:
    assert not takes_fused(torch.device("cpu"))
    assert takes_fused(torch.device("cuda"))


@pytest.mark.parametrize(
    ("dtype", "width", "groups"),
    [
        (torch.bfloat16, 128, True), (torch.float16, 256, True),
        (torch.float32, 128, False), (torch.bfloat16, 576, False),
    ],
)  # fmt: skip
def test_flash_attention_reads_groups_of_heads_that_it_takes(
    dtype: torch.dtype, width: int, groups: bool
) -> None:
    config = replace(CONFIG, head_dim=width)
    store = KVStore(config, 16, "paged", 16, dtype=dtype, device=torch.device("cpu"))
    assert reads_groups(store) == groups


class Written(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types here
    """The sizes of all tensors that are computed or copied, but for what attention itself writes,
    and for those as large as the queries."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sizes: list[int] = []
        self.attends = False

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = operator(*args, **(kwargs or {}))
        if not (self.attends or operator.is_view):
            self.sizes.append(result.numel())
        return result


@pytest.mark.parametrize("window", [None, 12])
@pytest.mark.parametrize("groups", [True, False])
@pytest.mark.parametrize("start", [0, 10])
def test_keys_and_values_are_copied_once_however_many_query_heads_read_them(
    monkeypatch: pytest.MonkeyPatch, start: int, groups: bool, window: int | None
) -> None:
    monkeypatch.setattr(step_attention, "takes_fused", lambda device: True)
    monkeypatch.setattr(step_attention, "reads_groups", lambda store: groups)
    exact, heads, width = F.scaled_dot_product_attention, CONFIG.kv_heads, CONFIG.head_dim
    context, rows = start + 20, 20
    written = {}
    for group in (2, 4, 8):
        store = KVStore(CONFIG, 64, "paged", 16, dtype=torch.float32, device=torch.device("cpu"))
        backend = AttentionBackend(store, (window,) * CONFIG.layers)
        seq = Sequence("a", 0.0, 30, 2)
        seq.blocks = [2, 0]
        attend = backend.plan([ScheduledSequence(seq, start, rows, yields_token=True)])
        counted = Written()

        def attention(queries: Any, keys: Any, values: Any, **options: Any) -> Any:
            for one in (keys, values):
                assert one.untyped_storage().nbytes() <= 4 * heads * max(context, rows) * width
            assert keys.shape[1] in (1, queries.shape[1])
            counted.attends = True  # noqa: B023
            found = exact(queries, keys, values, **options)
            counted.attends = False  # noqa: B023
            return found

        patched = SimpleNamespace(scaled_dot_product_attention=attention)
        monkeypatch.setattr(step_attention, "F", patched)
        queries = torch.randn(rows, heads * group, width)
        keys, values = torch.randn(rows, heads, width), torch.randn(rows, heads, width)
        with counted:
            attend(0, queries, keys, values)
        written[group] = [size for size in counted.sizes if size != queries.numel()]
    assert written[2] == written[4] == written[8]


@pytest.mark.parametrize("groups", [True, False])
def test_prompts_in_chunks_as_cuda_has_them_say_what_transformers_says(
    oracle: Oracle, monkeypatch: pytest.MonkeyPatch, groups: bool
) -> None:
    monkeypatch.setattr(step_attention, "takes_fused", lambda device: True)
    monkeypatch.setattr(step_attention, "reads_groups", lambda store: groups)
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
        k = k.expand(-1, 1 if fused else 4, -1, -1)
        output = F.scaled_dot_product_attention(q, k, k, attn_mask=mask, enable_gqa=fused)
        found.append(output.float().cpu())
    assert (found[0] - found[1]).abs().max() <= 3e-2
