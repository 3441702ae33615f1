"""The C attention of decodes against an exact softmax, for every shape of group and context."""

import shutil
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from servetwin.engine.attention.choose import attention_backend
from servetwin.engine.attention.native import NativeAttention
from servetwin.engine.kv.kv_store import KVStore, store_type
from servetwin.engine.models.model_config import model_preset
from servetwin.policies.batch import ScheduledSequence
from servetwin.policies.protocols import KVLayout
from servetwin.policies.sequence import Sequence
from servetwin.workloads.errors import EngineError

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

TINY = model_preset("tiny")
SLOTS = 1024


def filled_store(
    kv_heads: int, head_dim: int, block_tokens: int, layout: KVLayout, dtype: torch.dtype
) -> KVStore:
    """A store whose slots are NaN."""
    config = replace(TINY, kv_heads=kv_heads, head_dim=head_dim)
    store = KVStore(config, SLOTS, layout, block_tokens, dtype=dtype, device=torch.device("cpu"))
    store.keys.fill_(torch.nan)
    store.values.fill_(torch.nan)
    return store


def decodes(store: KVStore, contexts: list[int]) -> list[ScheduledSequence]:
    """Sequences in scattered blocks, filled with random keys and values up to their contexts."""
    order = torch.randperm(SLOTS // store.block_tokens).tolist()
    entries, region = [], 0
    for index, context in enumerate(contexts):
        seq = Sequence(str(index), 0.0, context, 10)
        held = -(-context // store.block_tokens)
        seq.blocks, order = order[:held], order[held:]
        seq.region_start = region
        region += context
        slots = torch.from_numpy(store.slots(seq, 0, context))
        for stored in (store.keys, store.values):
            stored[:, slots] = torch.randn(stored[:, slots].shape).to(stored.dtype) * 2
        entries.append(ScheduledSequence(seq, context - 1, 1, True))
    return entries


def exact(
    store: KVStore, layer: int, entry: ScheduledSequence, queries: Tensor, window: int | None = None
) -> Tensor:
    """Softmax attention of one sequence in float64: [kv heads, group, head dim]."""
    first = 0 if window is None else max(0, entry.start + 1 - window)
    slots = torch.from_numpy(store.slots(entry.seq, first, entry.start + 1))
    keys, values = (stored[slots].double() for stored in store.layers[layer])
    scores = torch.einsum("hgd,thd->hgt", queries.double(), keys) * queries.shape[-1] ** -0.5
    return torch.einsum("hgt,thd->hgd", scores.softmax(-1), values)


def assert_exact(store: KVStore, group: int, contexts: list[int], error: float) -> None:
    entries = decodes(store, contexts)
    backend = attention_backend("native", store, group)
    step = backend.plan_decodes(entries, None)
    _, _, kv_heads, head_dim = store.keys.shape
    queries = torch.randn(len(entries), kv_heads, group, head_dim).to(store.keys.dtype)
    for layer in range(len(store.layers)):
        outputs = step(layer, queries)
        for entry, query, output in zip(entries, queries, outputs, strict=True):
            expected = exact(store, layer, entry, query)
            torch.testing.assert_close(output.double(), expected, rtol=error, atol=error)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("group", [1, 3, 8])
@pytest.mark.parametrize("layout", ["paged", "contiguous"])
def test_it_is_softmax_attention(layout: KVLayout, group: int, dtype: torch.dtype) -> None:
    store = filled_store(2, 32, 16, layout, dtype)
    assert_exact(store, group, [1, 15, 16, 17, 200, 31], 1e-5 if dtype == torch.float32 else 2e-2)


@given(
    contexts=st.lists(st.integers(1, 100), min_size=1, max_size=6),
    block_tokens=st.sampled_from([1, 7, 16, 64]),
)
def test_whatever_the_contexts_and_the_blocks(contexts: list[int], block_tokens: int) -> None:
    assert_exact(filled_store(2, 8, block_tokens, "paged", torch.float32), 2, contexts, 1e-5)


@given(
    context=st.integers(1, 100),
    window=st.integers(1, 110),
    block_tokens=st.sampled_from([1, 7, 64]),
    layout=st.sampled_from(["paged", "contiguous"]),
)
def test_a_window_reads_the_last_tokens_only(
    context: int, window: int, block_tokens: int, layout: KVLayout
) -> None:
    store = filled_store(2, 8, block_tokens, layout, torch.float32)
    entries = decodes(store, [5, context])
    hidden = torch.from_numpy(store.slots(entries[1].seq, 0, max(0, context - window)))
    store.keys[:, hidden] = torch.nan
    queries = torch.randn(2, 2, 2, 8)
    output = attention_backend("native", store, 2).plan_decodes(entries, window)(1, queries)
    for entry, query, row in zip(entries, queries, output, strict=True):
        expected = exact(store, 1, entry, query, window)
        torch.testing.assert_close(row.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layout", ["paged", "contiguous"])
def test_int8_is_read_with_its_scales(layout: KVLayout, dtype: torch.dtype) -> None:
    config, device = replace(TINY, kv_heads=2, head_dim=32), torch.device("cpu")
    store = store_type("int8")(config, SLOTS, layout, 16, dtype=dtype, device=device)
    entries = decodes(filled_store(2, 32, 16, layout, dtype), [40, 3, 77])
    for entry in entries:
        slots = torch.from_numpy(store.slots(entry.seq, 0, entry.start + 1))
        keys, values = (torch.randn(2, len(slots), 2, 32) * 2).to(dtype)
        store.write(1, slots, keys, values)
    queries = torch.randn(3, 2, 4, 32).to(dtype)
    native, plain = (
        attention_backend(name, store, 4).plan_decodes(entries, None)(1, queries)
        for name in ("native", "per-sequence")
    )
    error = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(native, plain, rtol=error, atol=error)


def test_scores_of_any_size_do_not_overflow() -> None:
    torch.manual_seed(0)  # of some numbers, two scores are almost equal, and rounding decides
    store = filled_store(2, 32, 16, "paged", torch.float32)
    entries = decodes(store, [50])
    queries = torch.randn(1, 2, 2, 32) * 1e4
    output = attention_backend("native", store, 2).plan_decodes(entries, None)(0, queries)
    torch.testing.assert_close(output[0].double(), exact(store, 0, entries[0], queries[0]))


def test_a_row_does_not_depend_on_its_batch() -> None:
    store = filled_store(2, 32, 16, "paged", torch.float32)
    entries = decodes(store, [40, 3, 77])
    backend = attention_backend("auto", store, 2)
    assert isinstance(backend, NativeAttention)
    queries = torch.randn(3, 2, 2, 32)
    together = backend.plan_decodes(entries, None)(1, queries)
    for index, entry in enumerate(entries):
        alone = backend.plan_decodes([entry], None)(1, queries[index : index + 1])
        assert torch.equal(alone[0], together[index])


def test_without_a_compiler_each_sequence_has_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    store = filled_store(2, 40, 16, "paged", torch.float32)  # a shape of which no kernel is kept
    assert attention_backend("auto", store, 5).name == "per-sequence"
    with pytest.raises(EngineError, match=r"^attention 'native' needs a C compiler"):
        attention_backend("native", store, 5)
    half = filled_store(2, 32, 16, "paged", torch.float16)
    assert attention_backend("auto", half, 2).name == "per-sequence"
