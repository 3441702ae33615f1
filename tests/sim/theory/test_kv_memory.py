"""Waste of KV memory, against what the memories themselves hold."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.policies.config import PolicyConfig, Reservation
from servetwin.policies.kv.contiguous import ContiguousKV
from servetwin.policies.sequence import Sequence
from tests.support.markov import FEW
from tests.support.theory.serving import (
    ForkedBlocks,
    copy_on_write,
    mean_paged_waste_tokens,
    region_use,
    sampled_paged_waste_tokens,
    sampled_region_use,
)

PROMPTS, OUTPUTS = [100, 30, 7, 400], [50, 200, 9, 100]


@pytest.mark.parametrize("reservation", ["exact", "max", "pow2"])
def test_region_use_is_the_time_average_of_what_contiguous_memory_holds(
    reservation: Reservation,
) -> None:
    """Each request holds its own region for its output's steps, half a token into each step."""
    config = PolicyConfig(
        kv="contiguous", kv_tokens=4096, max_model_len=512, reservation=reservation
    )
    memory = ContiguousKV(config)
    held = np.zeros(4)
    for place, (prompt, output) in enumerate(zip(PROMPTS, OUTPUTS, strict=True)):
        seq = Sequence(str(place), 0.0, prompt_tokens=prompt, max_tokens=output)
        assert memory.reserve(seq, prompt)
        for step in np.arange(output) + 0.5:
            held += [1, prompt + step, output - step, seq.held.region_tokens]
    use = sampled_region_use(PROMPTS, OUTPUTS, reservation, 512)
    expected = held[1:] / held[0]
    found = [use.live_tokens, use.reserved_tokens, use.allocated_tokens]
    assert found == pytest.approx(expected.tolist(), rel=1e-12)
    assert sum(use.shares.values()) == pytest.approx(1)
    assert use.shares["live"] == pytest.approx(expected[0] / expected[2])


@pytest.mark.parametrize("region_tokens", [None, 512])
def test_region_use_from_moments_is_that_of_an_independent_sample(
    region_tokens: int | None,
) -> None:
    pairs = np.array(list(product(PROMPTS, [20, 60, 100])))
    cv = float(np.std([20, 60, 100])) / 60
    moments = region_use(float(np.mean(PROMPTS)), 60.0, cv, region_tokens)
    reservation: Reservation = "max" if region_tokens else "exact"
    sample = sampled_region_use(pairs[:, 0], pairs[:, 1], reservation, 512)
    assert moments.live_tokens == pytest.approx(sample.live_tokens)
    assert moments.reserved_tokens == pytest.approx(sample.reserved_tokens)
    if region_tokens:
        assert moments.internal_waste_tokens == pytest.approx(sample.internal_waste_tokens)
    else:
        assert moments.internal_waste_tokens == pytest.approx(0, abs=1e-9)


def test_paged_waste_of_16_token_blocks() -> None:
    assert mean_paged_waste_tokens(16) == 7.5


@given(st.lists(st.tuples(FEW, st.integers(1, 70)), min_size=1, max_size=5), FEW)
def test_sampled_paged_waste_counts_every_step(pairs: list[tuple[int, int]], block: int) -> None:
    waste = [-length % block for p, o in pairs for length in range(p + 1, p + o + 1)]
    prompts, outputs = zip(*pairs, strict=True)
    sampled = sampled_paged_waste_tokens(prompts, outputs, block)
    assert sampled == pytest.approx(np.mean(waste))


def test_copy_on_write_numbers() -> None:
    assert copy_on_write(100, 50, 4, 16) == ForkedBlocks(22, 40, 3)


def forked_block_table(prompt: int, output: int, samples: int, block: int) -> tuple[int, int]:
    """Blocks and copies of ``samples`` block tables that write their tokens one after another."""
    owners = dict.fromkeys(range(-(-prompt // block)), samples)
    tables, copies = [list(owners) for _ in range(samples)], 0
    for position, table in product(range(prompt, prompt + output), tables):
        if position % block == 0:
            table.append(len(owners))
            owners[table[-1]] = 1
        elif owners[table[-1]] > 1:
            owners[table[-1]] -= 1
            table[-1] = len(owners)
            owners[table[-1]] = 1
            copies += 1
    return len(owners), copies


@given(st.integers(1, 60), st.integers(1, 60), FEW, FEW)
def test_copy_on_write_is_what_block_tables_do(
    prompt: int, output: int, samples: int, block: int
) -> None:
    forked = copy_on_write(prompt, output, samples, block)
    assert (forked.blocks, forked.copies) == forked_block_table(prompt, output, samples, block)
    assert forked.unshared_blocks == samples * -(-(prompt + output) // block)
