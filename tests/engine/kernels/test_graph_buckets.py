"""Steps of decodes by graphs: the same tokens as without, whatever joins, ends and grows."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from servetwin.engine.attention.table_attention import TableAttention
from servetwin.engine.kernels.graphs import GraphBuckets, bucket_sizes
from servetwin.engine.sampling.token_state import TokenState
from servetwin.policies.batch import Batch, ScheduledSequence
from servetwin.policies.protocols import KVLayout
from servetwin.workloads.errors import EngineError
from tests.engine.core.test_runner import (
    GREEDY,
    Driver,
    RecordingRunner,
    make_sequences,
    run_alone,
    run_together,
)
from tests.support.engine_oracle import NEW_TOKENS, PROMPT_TOKENS, PROMPTS
from tests.support.recorded_graphs import RecordedGraphs
from tests.support.table_reference import attend_by_table

MOST_TOKENS = PROMPT_TOKENS + NEW_TOKENS


def graph_runner(most_rows: int = 4, **options: Any) -> tuple[RecordingRunner, RecordedGraphs]:
    """A runner whose decodes are graphs, with products that torch itself runs."""
    runner, graphs = RecordingRunner(prepack=False, **options), RecordedGraphs()
    runner._attention = TableAttention(runner.store, attend_by_table)
    runner.capture_decodes(graphs, most_rows, MOST_TOKENS)
    return runner, graphs


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["paged", "contiguous"])
def test_graphs_change_no_token(layout: KVLayout) -> None:
    eager = RecordingRunner(prepack=False, layout=layout, attention="per-sequence")
    runner, graphs = graph_runner(layout=layout)
    for chunk_tokens, padding, run in product([MOST_TOKENS, 7], [0, 3], [run_alone, run_together]):
        expected, expected_logits = run(Driver(eager, chunk_tokens, padding))
        graphs.replays.clear()
        tokens, logits = run(Driver(runner, chunk_tokens, padding))
        mode = (chunk_tokens, padding, run.__name__)
        assert tokens == expected, mode
        assert (logits - expected_logits).abs().max() <= 2e-5, mode
        assert len(graphs.replays) >= NEW_TOKENS - 20, mode


def test_a_step_takes_the_smallest_graph_that_holds_it() -> None:
    runner, graphs = graph_runner(most_rows=3)
    assert graphs.captured == [3, 2, 1]
    seqs = make_sequences()
    states = {str(i): TokenState([*prompt, 1], GREEDY) for i, prompt in enumerate(PROMPTS)}
    prefill = [ScheduledSequence(seq, 0, PROMPT_TOKENS, yields_token=True) for seq in seqs]
    decode = [ScheduledSequence(seq, PROMPT_TOKENS, 1, yields_token=True) for seq in seqs]
    for entries, sizes in [
        (prefill, []),
        (decode[:1], [1]),
        (decode[:2], [2]),
        (decode[:3], [3]),
        (decode, []),
        ([*decode[:1], *prefill[2:3]], []),
    ]:
        graphs.replays.clear()
        runner.logits(Batch(entries), states)
        assert graphs.replays == sizes


def test_a_context_beyond_the_captured_tables_is_computed_without_a_graph() -> None:
    runner, graphs = graph_runner()
    (seq,) = make_sequences()[:1]
    seq.blocks = list(range(20))
    states = {"0": TokenState([1] * 200, GREEDY)}
    runner.logits(Batch([ScheduledSequence(seq, 0, 199, yields_token=True)]), states)
    beyond = [ScheduledSequence(seq, 199, 1, yields_token=True)]
    found = runner.logits(Batch(beyond), states)
    assert graphs.replays == []
    assert found.isfinite().all()


def test_idle_rows_write_to_the_spare_slot_alone() -> None:
    """A bucket of four whose last rows were used in the step before."""
    runner, graphs = graph_runner()
    seqs = make_sequences()
    states = {str(i): TokenState([*prompt, 1], GREEDY) for i, prompt in enumerate(PROMPTS)}
    runner.execute(
        Batch([ScheduledSequence(seq, 0, PROMPT_TOKENS, yields_token=True) for seq in seqs]), states
    )
    rows = [ScheduledSequence(seq, PROMPT_TOKENS, 1, yields_token=True) for seq in seqs]
    runner.execute(Batch(rows), states)
    before = runner.store.keys.clone()
    changed = [TokenState([*prompt, 2], GREEDY) for prompt in PROMPTS]
    runner.execute(Batch(rows[:3]), {str(i): state for i, state in enumerate(changed)})
    assert graphs.replays == [4, 4]
    touched = (runner.store.keys != before) & ~(runner.store.keys.isnan() & before.isnan())
    slots = touched.any(-1).any(-1).any(0).nonzero().flatten().tolist()
    written = [runner.store.slot(seq, PROMPT_TOKENS) for seq in seqs[:3]]
    assert set(slots) - {runner.store.spare_slot} == set(written)


def test_a_row_that_does_not_sample_has_no_logits() -> None:
    runner, graphs = graph_runner()
    seqs = make_sequences()[:3]
    states = {str(i): TokenState([*prompt, 1], GREEDY) for i, prompt in enumerate(PROMPTS)}
    prefill = [ScheduledSequence(seq, 0, PROMPT_TOKENS, yields_token=True) for seq in seqs]
    runner.logits(Batch(prefill), states)
    rows = [ScheduledSequence(seq, PROMPT_TOKENS, 1, yields_token=True) for seq in seqs]
    every = runner.logits(Batch(rows), states).clone()
    rows[1] = rows[1]._replace(yields_token=False)
    some = runner.logits(Batch(rows), states)
    assert graphs.replays == [4, 4]
    assert torch.equal(some, every[[0, 2]])


def test_attention_that_gathers_cannot_be_captured() -> None:
    runner = RecordingRunner(attention="per-sequence")
    with pytest.raises(
        EngineError, match=r"^attention 'per-sequence' cannot be captured: use triton$"
    ):
        runner.capture_decodes(RecordedGraphs(), 4, MOST_TOKENS)


@pytest.mark.parametrize(
    ("most_rows", "sizes"),
    [
        (1, [1]),
        (5, [1, 2, 4, 5]),
        (8, [1, 2, 4, 8]),
        (100, [1, 2, 4, 8, 16, 32, 64, 100]),
        (256, [1, 2, 4, 8, 16, 32, 64, 128, 192, 256]),
    ],
)
def test_buckets_double_and_end_at_the_most_rows(most_rows: int, sizes: list[int]) -> None:
    assert bucket_sizes(most_rows) == sizes


@given(steps=st.lists(st.lists(st.integers(0, 999), min_size=1, max_size=6), max_size=5))
@settings(max_examples=10)
def test_a_graph_sees_the_rows_of_its_step_and_idle_ones(steps: list[list[int]]) -> None:
    """No row of an earlier step is left, whatever the sizes of the batches."""
    store = RecordingRunner().store
    seen: list[torch.Tensor] = []

    class Sums:
        def capture(self, compute: Any) -> Any:
            return compute

    def compute(rows: Any) -> torch.Tensor:
        seen.append(rows.matrix.clone())
        total: torch.Tensor = rows.matrix.sum(1)
        return total

    buckets = GraphBuckets(Sums(), compute, store, most_rows=6, most_tokens=64)
    for values in steps:
        matrix = np.array([[v, v, v, v, v] for v in values])
        assert buckets.fits(matrix)
        assert buckets.logits(matrix).tolist() == [5 * v for v in values]
        idle = seen[-1][len(values) :]
        assert (idle[:, 2] == store.spare_slot).all()
        assert not idle[:, [0, 1, 3]].any()
