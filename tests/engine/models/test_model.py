from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from engine.models.device import choose_device, choose_dtype
from engine.models.kv_store import KVStore
from engine.models.model import RotaryTable, rms_norm, rotate
from engine.models.model_config import PRESETS, model_preset
from engine.models.weights import Weights, random_weights
from policies.protocols import KVLayout
from policies.sequence import Sequence
from workloads.errors import EngineError

CPU = torch.device("cpu")
TINY = replace(model_preset("tiny"), tie_embeddings=False)


def tiny_weights(seed: int = 0, dtype: torch.dtype = torch.float32) -> Weights:
    return random_weights(TINY, seed=seed, std=0.06, dtype=dtype, device=CPU)


def tensors(weights: Weights) -> list[torch.Tensor]:
    flat = [getattr(layer, name) for layer in weights.layers for name in layer.__slots__]
    return [weights.embedding, *flat, weights.final_norm, weights.head]


@pytest.mark.parametrize(
    ("name", "parameters", "kv_bytes_per_token"),
    [
        ("base", 52_572_672, 2 * 12 * 2 * 64 * 2),
        ("llama-0.6b", 596_049_920 - 28 * 2 * 128, 2 * 28 * 8 * 128 * 2),
        ("llama-1b", 1_235_814_400, 2 * 16 * 8 * 64 * 2),
        ("llama-8b", 8_030_261_248, 2 * 32 * 8 * 128 * 2),
    ],
)
def test_presets_have_the_published_sizes(
    name: str, parameters: int, kv_bytes_per_token: int
) -> None:
    assert model_preset(name).parameters == parameters
    assert model_preset(name).kv_bytes_per_token(dtype_bytes=2) == kv_bytes_per_token


def test_the_default_preset_is_base() -> None:
    assert model_preset() is PRESETS["base"]


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(EngineError, match=r"unknown model 'lama-8b': did you mean 'llama-8b'\?"):
        model_preset("lama-8b")


@pytest.mark.parametrize("tied", [True, False])
def test_weights_are_as_many_as_the_config_says(tied: bool) -> None:
    config = replace(TINY, tie_embeddings=tied)
    weights = random_weights(config, seed=0, std=0.02, dtype=torch.float32, device=CPU)
    distinct = {tensor.data_ptr(): tensor.numel() for tensor in tensors(weights)}
    assert sum(distinct.values()) == config.parameters


def test_a_seed_gives_the_same_weights_and_another_seed_others() -> None:
    for first, again, other in zip(
        tensors(tiny_weights(1)), tensors(tiny_weights(1)), tensors(tiny_weights(2)), strict=True
    ):
        assert torch.equal(first, again)
        assert not torch.equal(first, other)


def test_bfloat16_weights_are_the_rounded_float32_weights() -> None:
    for exact, rounded in zip(
        tensors(tiny_weights()), tensors(tiny_weights(dtype=torch.bfloat16)), strict=True
    ):
        assert torch.equal(exact.bfloat16(), rounded)


def test_weights_have_the_asked_deviation_around_zero_and_norms_around_one() -> None:
    weights = tiny_weights()
    assert weights.embedding.std().item() == pytest.approx(0.06, rel=0.01)
    assert abs(weights.embedding.mean().item()) < 0.001
    assert weights.final_norm.mean().item() == pytest.approx(1.0, abs=0.02)
    assert weights.final_norm.std() > 0


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 2**-7)])
def test_rms_norm_equals_torch(dtype: torch.dtype, tolerance: float) -> None:
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(*shape, generator=generator).to(dtype) for shape in [(5, 64), (64,)])
    expected = F.rms_norm(x.float(), (64,), weight.float(), 1e-5)
    torch.testing.assert_close(
        rms_norm(x, weight, 1e-5).float(), expected, rtol=tolerance, atol=tolerance
    )


def test_rotation_is_a_complex_product_per_pair() -> None:
    heads = torch.randn(3, 2, TINY.head_dim, generator=torch.Generator().manual_seed(0))
    positions = torch.tensor([0, 7, 1000])
    cos, sin = RotaryTable(TINY, torch.float32, CPU).at(positions, 1001)
    half = TINY.head_dim // 2
    frequencies = TINY.rope_theta ** (-torch.arange(half).double() / half)
    turns = torch.polar(torch.ones(3, half).double(), positions[:, None] * frequencies)[:, None]
    expected = torch.complex(heads[..., :half].double(), heads[..., half:].double()) * turns
    rotated = rotate(heads, cos, sin).double()
    torch.testing.assert_close(
        rotated, torch.cat([expected.real, expected.imag], -1), rtol=0, atol=5e-4
    )


def test_the_rotary_table_grows_by_powers_of_two_and_keeps_its_values() -> None:
    table, last = RotaryTable(TINY, torch.float32, CPU), torch.tensor([4])
    before = table.at(last, 5)
    table.at(last, 8)
    assert len(table._cos) == 8
    table.at(torch.tensor([8]), 9)
    assert len(table._cos) == 16
    assert all(map(torch.equal, before, table.at(last, 5)))
    assert len(table._cos) == 16


def store(layout: KVLayout, block_tokens: int) -> KVStore:
    whole = KVStore(TINY, 64, dtype=torch.float32, device=CPU)
    return whole.with_layout(layout, block_tokens)


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
    seq.blocks, seq.region_start, seq.region_tokens = [5, 0, 3], 30, 12
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


def test_kv_memory_that_cannot_be_had_is_an_error_with_its_size() -> None:
    with pytest.raises(EngineError, match=r"no room for 1000000000000000 KV tokens \(1024000000"):
        KVStore(TINY, 10**15, dtype=torch.float32, device=CPU)


def test_automatic_dtype_depends_on_the_device() -> None:
    assert choose_dtype("auto", CPU) is torch.float32
    assert choose_dtype("auto", torch.device("cuda")) is torch.bfloat16
    assert choose_dtype("bfloat16", CPU) is torch.bfloat16


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpu", "unknown device 'gpu': use auto, cpu, cuda or cuda:N"),
        ("meta", "device 'meta' is not supported: use auto, cpu, cuda or cuda:N"),
        ("cuda:64", r"device 'cuda:64' is not here: torch sees \d+ CUDA devices"),
    ],
)
def test_an_impossible_device_is_refused(name: str, message: str) -> None:
    with pytest.raises(EngineError, match=f"^{message}$"):
        choose_device(name)
