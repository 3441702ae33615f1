"""Scaled prompts share what they shared."""

from fractions import Fraction
from itertools import combinations
from math import ceil, floor

from hypothesis import given
from hypothesis import strategies as st

from tests.support.prefix_chains import chained_traces, shared_ids, shared_tokens
from workloads.trace import Trace
from workloads.transform import scale_tokens

factors = st.sampled_from([0.01, 0.1, 0.29, 0.5, 0.7, 0.999, 1.7, 2.0, 3.3])


@given(chained_traces(), factors)
def test_scaled_prompts_share_what_they_shared(trace: Trace, factor: float) -> None:
    scaled = scale_tokens(trace, prompt=factor)
    pairs = zip(combinations(trace, 2), combinations(scaled, 2), strict=True)
    for (left, right), (new_left, new_right) in pairs:
        assert left.block_tokens is not None
        assert new_left.block_tokens is not None
        shared = shared_ids(left, right) * left.block_tokens * Fraction(str(factor))
        new = shared_ids(new_left, new_right)
        shorter = min(len(new_left.prefix_block_ids), len(new_right.prefix_block_ids))
        assert new >= min(floor(shared / new_left.block_tokens), shorter)
        assert shared_tokens(new_left, new_right) <= (max(1, round(shared)) if shared else 0)


@given(chained_traces(), factors)
def test_scaled_ids_are_valid(trace: Trace, factor: float) -> None:
    position: dict[int, int] = {}
    for old, new in zip(trace, scale_tokens(trace, prompt=factor), strict=True):
        assert old.block_tokens is not None
        assert new.block_tokens is not None
        assert new.prompt_tokens == max(1, round(old.prompt_tokens * Fraction(str(factor))))
        assert new.block_tokens == max(1, round(old.block_tokens * Fraction(str(factor))))
        if len(old.prefix_block_ids) * old.block_tokens >= old.prompt_tokens:
            assert len(new.prefix_block_ids) == ceil(new.prompt_tokens / new.block_tokens)
        else:
            assert len(new.prefix_block_ids) * new.block_tokens <= new.prompt_tokens
        for index, block_id in enumerate(new.prefix_block_ids):
            assert position.setdefault(block_id, index) == index  # an id has one place


@given(chained_traces())
def test_scaling_only_outputs_leaves_prompts_alone(trace: Trace) -> None:
    assert scale_tokens(trace, output=1.0).requests == trace.requests
