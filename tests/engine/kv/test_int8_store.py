"""Keys and values in int8: what comes back, and what it weighs."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from servetwin.engine.kv.kv_store import Int8KVStore, KVStore, store_type
from servetwin.engine.models.model_config import LatentConfig, ModelConfig, model_preset
from servetwin.policies.protocols import KVLayout
from servetwin.policies.sequence import Sequence
from servetwin.sim.step_times.roofline.formats import Grid, sqnr_db
from servetwin.workloads.errors import EngineError

CPU = torch.device("cpu")
TINY = model_preset("tiny")
WITH_LATENT = replace(TINY, latent=LatentConfig(48, 16, 32), head_dim=48, kv_heads=1)


def store(layout: KVLayout = "paged", config: ModelConfig = TINY) -> KVStore:
    return store_type("int8")(config, 64, layout, 4, dtype=torch.float32, device=CPU)


def holder() -> Sequence:
    seq = Sequence("a", 0.0, 10, 1)
    seq.blocks, seq.region_start, seq.held.region_tokens = [5, 0, 3], 30, 12
    return seq


def random_rows(config: ModelConfig = TINY, rows: int = 10) -> tuple[torch.Tensor, torch.Tensor]:
    shape = (rows, config.kv_heads, config.key_dim)
    keys, values = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    return keys, values


def half_steps(rows: torch.Tensor) -> torch.Tensor:
    return 0.5001 * rows.abs().amax(-1, keepdim=True) / 127


@pytest.mark.parametrize("layout", ["paged", "contiguous"])
def test_what_is_written_comes_back_within_half_a_step_of_its_head(layout: KVLayout) -> None:
    kv, seq, (keys, values) = store(layout), holder(), random_rows()
    slots = torch.from_numpy(kv.slots(seq, 0, 10))
    kv.write(1, slots, keys, values)
    as_read = kv.as_read(keys, values)
    for written, expected, read in zip((keys, values), as_read, kv.read(1, slots), strict=True):
        assert torch.equal(read, expected)
        assert ((read - written).abs() <= half_steps(written)).all()
    read_keys, read_values = kv.context(seq, 7, 2)(1)
    assert torch.equal(read_keys.squeeze(1), as_read[0][2:7].transpose(0, 1))
    assert torch.equal(read_values.squeeze(1), as_read[1][2:7].transpose(0, 1))


def test_the_noise_is_that_of_the_formula() -> None:
    (keys, values), kv = random_rows(rows=2000), store()
    read, _ = kv.as_read(keys, values)
    noise = (read - keys).square().mean()
    measured, predicted = float(10 * torch.log10(1 / noise)), sqnr_db(Grid("integer", 8, 32))
    print(f"int8 keys: {measured:.2f} dB measured, {predicted:.2f} dB by formula")  # noqa: T201
    assert abs(measured - predicted) < 0.5


def test_the_bytes_are_a_code_an_element_and_a_scale_a_head() -> None:
    assert store().bytes == 64 * TINY.layers * 2 * TINY.kv_heads * (TINY.head_dim + 4)
    assert store(config=WITH_LATENT).bytes == 64 * TINY.layers * (WITH_LATENT.key_dim + 4)


def test_a_latent_is_stored_once() -> None:
    kv, (latents, _) = store(config=WITH_LATENT), random_rows(WITH_LATENT)
    slots = torch.arange(10)
    kv.write(0, slots, latents, latents)
    keys, values = kv.read(0, slots)
    assert keys is values
    assert len(kv.tensors) == 2
    assert ((keys - latents).abs() <= half_steps(latents)).all()


def test_scales_move_with_their_codes() -> None:
    kv, (keys, values) = store(), random_rows(rows=4)
    kv.write(0, torch.arange(4), keys, values)
    before = kv.read(0, torch.arange(4))
    kv.move([0, 1, 2, 3], [20, 21, 22, 23])
    kv.put(np.arange(40, 44), kv.take(np.arange(4)))
    for first in (20, 40):
        after = kv.read(0, torch.arange(first, first + 4))
        assert all(torch.equal(*pair) for pair in zip(before, after, strict=True))


def test_what_is_no_number_is_not_lost() -> None:
    kv, (keys, values) = store(), random_rows(rows=1)
    keys[0, 0, 3] = torch.nan
    kv.write(0, torch.arange(1), keys, values)
    assert kv.read(0, torch.arange(1))[0][0, 0].isnan().all()


def test_the_store_is_chosen_by_name() -> None:
    plain = store_type("as-dtype")(TINY, 64, "paged", 4, dtype=torch.float32, device=CPU)
    assert (type(plain), type(store())) == (KVStore, Int8KVStore)
    with pytest.raises(EngineError, match="unknown kv_format 'fp8': use as-dtype or int8"):
        store_type("fp8")(TINY, 64, "paged", 4, dtype=torch.float32, device=CPU)
