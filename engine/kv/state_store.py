"""The states of layers without keys and values, and what a step reads and writes of them.

A state after n positions lies in the first block that its sequence holds from the place of position
n - 1 on (``policies.kv.grouped``): so decodes go on in place, and with a prefix cache a state stays
where a block ends, for others to begin with. A step that fails has written nothing, so that it may
run again.
"""

from collections.abc import Sequence as Listed
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from servetwin.engine.kv.room import require_room
from servetwin.engine.models.device import to_device
from servetwin.engine.models.model_config import ModelConfig
from servetwin.policies.batch import ScheduledSequence
from servetwin.policies.kv.block_tables import NOWHERE

# Of some sequences: the rows that the convolution sees of those before, [sequences, kernel - 1,
# width], and what heads keep, [sequences, heads, head dim, state dim] in float32.
State = tuple[Tensor, Tensor]


class StateRun(NamedTuple):
    """Rows that go on from states to states: those of a sequence, or one of each of several.

    ``sources`` are the blocks of the states before them (None: there is nothing before),
    ``targets`` of those behind; ``first`` and ``last`` are these blocks of one sequence.
    """

    rows: slice | Tensor
    sources: Tensor | None
    targets: Tensor
    first: int = NOWHERE
    last: int = NOWHERE


class StateStore:
    """A state for each block and layer, of which those in blocks of states are used."""

    def __init__(
        self, model: ModelConfig, kv_tokens: int, block_tokens: int, *, dtype: torch.dtype,
        device: torch.device,
    ) -> None:  # fmt: skip
        space, blocks = model.state_space, kv_tokens // block_tokens
        assert space is not None
        sizes, self._layers = space.sizes, len(space.layers)
        rows = sizes.kernel - 1, sizes.convolved
        heads = sizes.heads, sizes.head_dim, sizes.state_dim
        block_bytes = self._layers * (prod(rows) * dtype.itemsize + prod(heads) * 4)
        name = f"blocks with states of model {model.name}, of {block_tokens} tokens each,"
        require_room(name, blocks, block_bytes, device)
        self.tensors = (
            torch.empty((self._layers, blocks, *rows), dtype=dtype, device=device),
            torch.empty((self._layers, blocks, *heads), dtype=torch.float32, device=device),
        )
        self.bytes, self.block_tokens = blocks * block_bytes, block_tokens

    def plan(self, entries: list[ScheduledSequence]) -> "StateStep":
        """Return what a step of ``entries`` reads and writes; groups have the layers in order."""
        groups = len(entries[0].seq.states)
        runs = [self._runs(entries, group) for group in range(groups)]
        return StateStep(self, [runs[n * groups // self._layers] for n in range(self._layers)])

    def copy_blocks(self, copies: list[tuple[int, int]]) -> None:
        """Copy the states of blocks, (source, target) each; all are read before one is written."""
        sources, targets = to_device(np.array(copies), self.tensors[0].device).unbind(1)
        for stored in self.tensors:
            stored.index_copy_(1, targets, stored.index_select(1, sources))

    def _runs(self, entries: list[ScheduledSequence], group: int) -> list[StateRun]:
        """Return the runs of the layers in a group: decodes, then prompts in order of admission,
        which may go on from states that the same step leaves.
        """
        decodes: list[tuple[int, int, int]] = []
        prompts: list[tuple[ScheduledSequence, int]] = []
        row = 0
        for entry in entries:
            seq, start, tokens = entry.seq, entry.start, entry.tokens
            if tokens == 1 and start and seq.lockstep is not None:
                table = seq.states[group]
                decodes.append((row, self._block(table, start), self._block(table, start + 1)))
            elif tokens:
                prompts.append((entry, row))
            row += entry.rows
        runs = []
        if decodes:
            rows, sources, targets = to_device(np.array(decodes), self.tensors[0].device).unbind(1)
            runs.append(StateRun(rows, sources, targets))
        for entry, row in sorted(prompts, key=lambda prompt: prompt[0].seq.admission_number):
            runs += self._prompt_runs(entry, row, entry.seq.states[group])
        return runs

    def _prompt_runs(
        self, entry: ScheduledSequence, row: int, table: Listed[int]
    ) -> list[StateRun]:
        """Return the rows of a prompt up to each end of a block that it holds, and to its own."""
        size, start, stop = self.block_tokens, entry.start, entry.start + entry.tokens
        last = self._block(table, stop)
        ends = [
            (place + 1) * size
            for place in range(start // size, min((stop - 1) // size, len(table)))
            if table[place] not in (NOWHERE, last)
        ]
        runs: list[StateRun] = []
        for first, end in zip([start, *ends], [*ends, stop], strict=True):
            rows = slice(row + first - start, row + end - start)
            source, target = self._block(table, first), self._block(table, end)
            blocks = to_device([source, target], self.tensors[0].device)
            runs.append(StateRun(rows, blocks[:1] if first else None, blocks[1:], source, target))
        return runs

    def _block(self, table: Listed[int], positions: int) -> int:
        """Return the block that holds the state after so many positions."""
        place = min(max(0, positions - 1) // self.block_tokens, len(table) - 1)
        return next(block for block in table[place:] if block != NOWHERE)


class StateStep:
    """The states of a step; ``runs`` are by layer."""

    def __init__(self, store: StateStore, runs: list[list[StateRun]]) -> None:
        self._store, self.runs = store, runs
        self._left: list[dict[int, tuple[Tensor, State]]] = [{} for _ in runs]

    def before(self, layer: int, run: StateRun) -> State | None:
        """Return the states from which a run goes on; None: from nothing."""
        if run.sources is None:
            return None
        if (left := self._left[layer].get(run.first)) is not None:
            return left[1]
        convolved, kept = (
            stored[layer].index_select(0, run.sources) for stored in self._store.tensors
        )
        return convolved, kept

    def leave(self, layer: int, run: StateRun, state: State) -> None:
        """Take the states behind a run, for further runs and for ``commit``."""
        self._left[layer][run.last] = run.targets, state

    def commit(self) -> None:
        """Write what the step has left."""
        for layer, left in enumerate(self._left):
            for targets, state in left.values():
                for stored, new in zip(self._store.tensors, state, strict=True):
                    stored[layer].index_copy_(0, targets, new)
