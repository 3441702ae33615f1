"""The KV store: slots of positions, reads and writes, its size."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from servetwin.engine.kv.kv_store import KVStore
from servetwin.engine.models.model_config import LatentConfig, model_preset
from servetwin.policies.protocols import KVLayout
from servetwin.policies.sequence import Sequence
from servetwin.workloads.errors import EngineError

CPU = torch.device("cpu")


TINY = replace(model_preset("tiny"), tie_embeddings=False)


def store(layout: KVLayout, block_tokens: int) -> KVStore:
    return KVStore(TINY, 64, layout, block_tokens, dtype=torch.float32, device=CPU)


@pytest.mark.parametrize(
    ("layout", "start", "stop", "slots"),
    [
        ("paged", 0, 10, [20, 21, 22, 23, 0, 1, 2, 3, 12, 13]),
        ("paged", 4, 8, [0, 1, 2, 3]),
        ("paged", 3, 6, [23, 0, 1]),
        ("paged", 9, 10, [13]),
        ("contiguous", 0, 3, [30, 31, 32]),
        ("contiguous", 5, 7, [35, 36]),
    ],
)
def test_slots_follow_the_block_table_or_the_region(
    layout: KVLayout, start: int, stop: int, slots: list[int]
) -> None:
    seq = holder()
    kv = store(layout, block_tokens=4)
    assert np.array_equal(kv.slots(seq, start, stop), slots)
    assert [kv.slot(seq, position) for position in range(start, stop)] == slots


def holder() -> Sequence:
    seq = Sequence("a", 0.0, 10, 1)
    seq.blocks, seq.region_start, seq.held.region_tokens = [5, 0, 3], 30, 12
    return seq


@pytest.mark.parametrize("layout", ["paged", "contiguous"])
def test_what_is_written_is_read_back_in_order(layout: KVLayout) -> None:
    seq = holder()
    kv = store(layout, block_tokens=4)
    shape = (10, TINY.kv_heads, TINY.head_dim)
    keys, values = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    kv.write(1, torch.from_numpy(kv.slots(seq, 0, 10)), keys, values)
    read_keys, read_values = kv.context(seq, 7)(1)
    assert torch.equal(read_keys.squeeze(1), keys[:7].transpose(0, 1))
    assert torch.equal(read_values.squeeze(1), values[:7].transpose(0, 1))


def test_the_store_reports_its_bytes() -> None:
    assert store("paged", 16).bytes == 64 * TINY.kv_bytes_per_token(dtype_bytes=4)


@pytest.mark.parametrize("layout", ["paged", "contiguous"])
def test_latents_are_stored_once_and_read_as_keys_and_values(layout: KVLayout) -> None:
    config = replace(TINY, kv_heads=1, head_dim=24, latent=LatentConfig(20, 8, 16))
    kv = KVStore(config, 64, layout, 4, dtype=torch.float32, device=CPU)
    assert kv.bytes == 64 * config.kv_bytes_per_token(4) == 64 * TINY.layers * (20 + 8) * 4
    latents = torch.randn(10, 1, 28)
    kv.write(1, torch.from_numpy(kv.slots(holder(), 0, 10)), latents, torch.zeros(0))
    keys, values = kv.context(holder(), 7, 2)(1)
    assert torch.equal(keys.flatten(0, 1), latents[2:7].transpose(0, 1))
    assert torch.equal(keys, values)


def test_kv_memory_that_cannot_be_had_is_an_error_with_its_size_and_what_fits() -> None:
    size = r"no room for 1000000000000000 KV tokens \(1024000000.*GB\)"
    with pytest.raises(EngineError, match=rf"{size} on cpu: at most [1-9]\d+ would fit$"):
        KVStore(TINY, 10**15, "paged", 16, dtype=torch.float32, device=CPU)
