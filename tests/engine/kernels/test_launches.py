"""How many kernels a decode step launches: outside of its graph, and in each layer inside."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from servetwin.engine.attention.table_attention import (
    NO_WINDOW,
    BlockTables,
    StoredHeads,
    TableAttention,
)
from servetwin.engine.core.runner import Runner
from servetwin.engine.kernels.graphs import Replay
from servetwin.engine.models import model
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.operators import PLAIN
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.sampling.token_state import TokenState
from servetwin.policies.batch import Batch, ScheduledSequence
from servetwin.policies.sequence import Sequence
from tests.engine.core.test_runner import GREEDY
from tests.support.engine_oracle import CONFIG
from tests.support.table_reference import attend_by_table

MOST_OUTSIDE, MOST_OUTSIDE_GREEDY = 60, 12
MOST_IN_A_LAYER, MOST_AROUND = 12, 9
UNSEEN = 10
"""The graph itself, the likeliest token (NumPy finds it on a CPU), and copies from and to the host,
of which greedy steps have two.
"""
NO_LAUNCH = ("empty", "new_empty", "detach", "_unsafe_view")


class Launches(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types here
    """Counts calls that launch a kernel on a GPU: all but views and allocations."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count, self._fused = 0, False
        self.names: list[str] = []

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = operator.overloadpacket.__name__
        if not self._fused and not operator.is_view and name not in NO_LAUNCH:
            self.count += 1
            self.names.append(name)
        return operator(*args, **(kwargs or {}))

    @contextmanager
    def fused(self, launches: int) -> Iterator[None]:
        """Count so many for all that is computed inside."""
        self.count += launches
        self._fused = True
        yield
        self._fused = False


class FusedOperators:
    """The operators of Triton, one launch each, computed by torch."""

    def __init__(self, launches: Launches) -> None:
        self._launches = launches

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            with self._launches.fused(1):
                return getattr(PLAIN, name)(*arguments, **named)

        return call


class NoReplay:
    """A backend whose replays launch nothing: the graph's own launch is counted apart."""

    def __init__(self) -> None:
        self.compute: Callable[[], Tensor]

    def capture(self, compute: Callable[[], Tensor]) -> Replay:
        self.compute, output = compute, compute()
        return lambda: output


Make = Callable[..., tuple[Runner, NoReplay, Launches]]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Make:
    def make(layers: int, heads: int = CONFIG.heads, rows: int = 8) -> Any:
        launches, graphs = Launches(), NoReplay()
        monkeypatch.setattr(model, "operators_for", lambda device: FusedOperators(launches))
        computation = Computation(device="cpu", prepack=False)
        config = replace(CONFIG, layers=layers, heads=heads)
        runner = Runner(config, computation, layout="paged", kv_tokens=32 * rows)

        def attend(
            queries: Tensor,
            stored: StoredHeads,
            tables: BlockTables,
            window: int = NO_WINDOW,
        ) -> Tensor:
            with launches.fused(2):
                return attend_by_table(queries, stored, tables, window)

        runner._attention = TableAttention(runner.store, attend)
        runner.capture_decodes(graphs, rows, 64)
        return runner, graphs, launches

    return make


@pytest.mark.parametrize("sampled", [True, False])
def test_a_step_launches_little_outside_of_its_graph(counted: Make, sampled: bool) -> None:
    runner, _, launches = counted(2)
    params = GREEDY if not sampled else replace(GREEDY, temperature=0.8, top_p=0.9, seed=1)
    launched = step_launches(runner, launches, 8, params) + UNSEEN
    assert launched <= (MOST_OUTSIDE if sampled else MOST_OUTSIDE_GREEDY), launches.names


def step_launches(
    runner: Runner, launches: Launches, sequences: int, params: SamplingParams = GREEDY
) -> int:
    """Launches and copies of a step of decodes, once another has warmed it up."""
    seqs = [Sequence(str(i), 0.0, 20, 30) for i in range(sequences)]
    for index, seq in enumerate(seqs):
        seq.blocks = [2 * index, 2 * index + 1]
    states = {seq.request_id: TokenState([1] * 21, params) for seq in seqs}
    batch = Batch([ScheduledSequence(seq, 20, 1, yields_token=True) for seq in seqs])
    runner.execute(batch, states)
    launches.count = 0
    with launches:
        runner.execute(batch, states)
    return launches.count


@pytest.mark.parametrize("captured", [True, False])
def test_a_step_launches_the_same_for_one_sequence_and_for_many_and_for_any_heads(
    counted: Make, captured: bool
) -> None:
    counts = {}
    for heads, sequences in product((4, 16), (1, 64)):
        runner, _, launches = counted(2, heads, 64)
        if not captured:
            runner._graphs = None
        counts[heads, sequences] = step_launches(runner, launches, sequences)
    assert len(set(counts.values())) == 1, counts


def test_every_layer_launches_few_kernels_inside_of_it(counted: Make) -> None:
    counts = []
    for layers in (2, 3):
        _, graphs, launches = counted(layers)
        launches.count = 0
        with torch.inference_mode(), launches:
            graphs.compute()
        counts.append(launches.count)
    layer = counts[1] - counts[0]
    assert layer <= MOST_IN_A_LAYER
    assert counts[0] - 2 * layer <= MOST_AROUND
