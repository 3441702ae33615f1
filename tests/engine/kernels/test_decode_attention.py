"""The decode kernel equals plain attention in float32, whatever the tables and the heads."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from servetwin.engine.attention.table_attention import (
    NO_WINDOW,
    BlockTables,
    DecodeKernel,
    StoredHeads,
)
from tests.support.table_reference import attend_by_table
from tests.support.triton_device import DEVICE, DEVICES, HAS_CUDA

pytest.importorskip("triton")
SLOTS, BLOCK = 640, 16
MAX_ERROR = 1e-5


def kernel(shares: int | None = 2) -> DecodeKernel:
    from servetwin.engine.kernels.decode_attention import attend_decodes

    def attend(
        queries: torch.Tensor,
        stored: StoredHeads,
        tables: BlockTables,
        window: int = NO_WINDOW,
    ) -> torch.Tensor:
        return attend_decodes(queries, stored, tables, window, shares=shares)

    return attend


def draw(*shape: int, seed: int = 0, device: str = DEVICE) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device)


def draw_stored(heads: int = 2, width: int = 32, value_width: int = 32) -> StoredHeads:
    """Slots that no row owns are NaN, so a kernel that reads one is found out."""
    keys = draw(SLOTS, heads, width, seed=1)
    return StoredHeads(keys, draw(SLOTS, heads, value_width, seed=2))


def paged(contexts: list[int], seed: int = 3) -> BlockTables:
    """Return tables of scattered blocks; entries beyond a context lead nowhere."""
    most = max(-(-context // BLOCK) for context in contexts)
    order = torch.randperm(SLOTS // BLOCK, generator=torch.Generator().manual_seed(seed)) * BLOCK
    table = torch.full((len(contexts), max(most, 1)), -(10**9))
    used = 0
    for row, context in zip(table, contexts, strict=True):
        blocks = -(-context // BLOCK)
        row[:blocks] = order[used : used + blocks]
        used += blocks
    return BlockTables(table.to(DEVICE), torch.tensor(contexts, device=DEVICE), BLOCK)


def error_of(
    queries: torch.Tensor,
    stored: StoredHeads,
    tables: BlockTables,
    window: int = NO_WINDOW,
    shares: int | None = 2,
) -> float:
    found = kernel(shares)(queries, stored, tables, window)
    assert found.shape == (*queries.shape[:3], stored.values.shape[2])
    expected = attend_by_table(queries, stored, tables, window)
    return float((found.float() - expected.float()).abs().max())


@pytest.mark.parametrize("group", [1, 4, 7, 8])
def test_groups_of_query_heads_share_a_key_head(group: int) -> None:
    queries = draw(3, 2, group, 32)
    assert error_of(queries, draw_stored(), paged([1, 63, 130])) <= MAX_ERROR


@pytest.mark.parametrize("shares", [1, 3, 32])
def test_any_number_of_shares_gives_the_same(shares: int) -> None:
    queries = draw(2, 1, 2, 32)
    assert error_of(queries, draw_stored(1), paged([200, 65]), shares=shares) <= MAX_ERROR


def test_a_row_that_attends_to_nothing_gives_zeros() -> None:
    queries, stored, tables = draw(3, 2, 2, 32), draw_stored(), paged([20, 0, 5])
    found = kernel()(queries, stored, tables)
    assert torch.equal(found[1], torch.zeros_like(found[1]))
    assert error_of(queries, stored, tables) <= MAX_ERROR


def test_slots_of_others_are_never_read() -> None:
    queries, stored, tables = draw(2, 2, 2, 32), draw_stored(), paged([37, 100])
    owned = torch.cat([
        tables.starts[row, : -(-context // BLOCK)].repeat_interleave(BLOCK)[:context]
        + torch.arange(context, device=DEVICE) % BLOCK
        for row, context in enumerate([37, 100])
    ])  # fmt: skip
    others = torch.ones(SLOTS, dtype=torch.bool, device=DEVICE)
    others[owned] = False
    stored.keys[others] = torch.nan
    stored.values[others] = torch.nan
    assert error_of(queries, stored, tables) <= MAX_ERROR


@pytest.mark.parametrize("window", [1, 30, 64])
def test_a_window_hides_the_positions_before_it(window: int) -> None:
    queries, stored, tables = draw(4, 1, 2, 32), draw_stored(1), paged([1, 31, 34, 200])
    assert error_of(queries, stored, tables, window) <= MAX_ERROR
    seen = kernel()(queries, stored, tables, window)
    assert (seen - kernel()(queries, stored, tables)).abs()[3].max() > 1e-3


def test_a_contiguous_region_is_one_block() -> None:
    starts = torch.tensor([[5], [300]], device=DEVICE)
    tables = BlockTables(starts, torch.tensor([70, 129], device=DEVICE), SLOTS)
    assert error_of(draw(2, 2, 2, 32), draw_stored(), tables) <= MAX_ERROR


def test_tables_and_contexts_may_be_columns_of_one_matrix() -> None:
    own = paged([70, 33])
    packed = torch.cat([own.contexts[:, None], own.starts], dim=1)
    tables = BlockTables(packed[:, 1:], packed[:, 0], BLOCK)
    assert error_of(draw(2, 2, 2, 32), draw_stored(), tables) <= MAX_ERROR


def test_queries_may_be_a_part_of_the_fused_product() -> None:
    fused = draw(2, 12, 32)
    queries = fused[:, :8].view(2, 2, 4, 32)
    assert error_of(queries, draw_stored(), paged([70, 33])) <= MAX_ERROR


@pytest.mark.parametrize(("width", "value_width"), [(40, 24), (80, 64), (24, 24)])
def test_keys_and_values_have_widths_of_their_own(width: int, value_width: int) -> None:
    """Latent attention stores keys that are wider than values; few widths are powers of two."""
    queries, stored = draw(2, 1, 4, width), draw_stored(1, width, value_width)
    assert error_of(queries, stored, paged([70, 33])) <= MAX_ERROR


def test_integers_are_scaled_by_token_and_head() -> None:
    whole = draw_stored()
    scaled = []
    for tensor in (whole.keys, whole.values):
        scales = tensor.abs().amax(-1) / 127
        scaled.append(((tensor / scales[..., None]).round().to(torch.int8), scales))
    (keys, key_scales), (values, value_scales) = scaled
    stored = StoredHeads(keys, values, key_scales, value_scales)
    queries, tables = draw(2, 2, 4, 32), paged([70, 33])
    assert error_of(queries, stored, tables) <= MAX_ERROR
    near = kernel()(queries, stored, tables) - attend_by_table(queries, whole, tables)
    assert 1e-4 < near.abs().max() < 0.05


@pytest.mark.parametrize("rows", [1, 3, 64, 500])
def test_shares_fill_the_card_and_have_bounds(rows: int) -> None:
    from servetwin.engine.kernels.decode_attention import shares_for

    shares = shares_for(8 * rows)
    assert 4 <= shares <= 32
    assert shares == 32 or 8 * rows * shares >= 4 * 132


@given(
    contexts=st.lists(st.integers(0, 150), min_size=1, max_size=3),
    heads=st.integers(1, 2),
    group=st.integers(1, 3),
    window=st.sampled_from([NO_WINDOW, 1, 17, 64]),
)
@settings(max_examples=8)
def test_any_contexts_and_windows(contexts: list[int], heads: int, group: int, window: int) -> None:
    queries, stored = draw(len(contexts), heads, group, 32), draw_stored(heads)
    assert error_of(queries, stored, paged(contexts), window) <= MAX_ERROR


@pytest.mark.parametrize("device", DEVICES)
def test_half_precision_is_as_near_as_its_rounding(device: str) -> None:
    queries, stored = draw(2, 2, 4, 32).half(), draw_stored()
    halves = StoredHeads(stored.keys.half(), stored.values.half())
    assert device == DEVICE
    assert error_of(queries, halves, paged([70, 33])) <= 2e-3


@pytest.mark.parametrize(("width", "group"), [(64, 4), (128, 4), (128, 1), (128, 7)])
@pytest.mark.parametrize("window", [NO_WINDOW, 1024])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.gpu
@pytest.mark.skipif(not HAS_CUDA, reason="needs a CUDA device")
def test_long_contexts_of_real_heads_on_a_gpu(
    width: int, group: int, window: int, dtype: torch.dtype
) -> None:
    blocks = 4096
    keys, values = draw(blocks * BLOCK, 8, width, seed=1), draw(blocks * BLOCK, 8, width, seed=2)
    stored = StoredHeads(keys.to(dtype), values.to(dtype))
    contexts = torch.tensor([1, 17, 2048, 8191], device=DEVICE)
    table = torch.randperm(blocks, generator=torch.Generator().manual_seed(3)) * BLOCK
    tables = BlockTables(table.view(8, 512)[:4].to(DEVICE), contexts, BLOCK)
    queries = draw(4, 8, group, width).to(dtype)
    most = MAX_ERROR if dtype == torch.float32 else 1e-2
    assert error_of(queries, stored, tables, window, shares=None) <= most
