"""A runner whose decodes leave the layers early, by given shares.

With random weights no confidence says which token may leave. So a number drawn by the token and
its position does, equally for equal contents: a token leaves at a depth as often as its share says,
independently of the others, as the formula of the technique assumes. Prompts go through all layers,
and so does what is computed again after a preemption.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from servetwin.engine.attention.step_attention import is_decode
from servetwin.engine.core.runner import Runner
from servetwin.engine.core.step_input import StepInput
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.device import to_device
from servetwin.engine.models.early_exit import ExitingDecoder, Stage
from servetwin.engine.models.model_config import ModelConfig
from servetwin.engine.sampling.noise import row_bits, uniforms
from servetwin.policies.batch import ScheduledSequence

_STREAM = 1 << 20
"""Of random numbers that nothing else uses."""


class EarlyExitRunner(Runner):
    """A runner with exits, as ``Computation.exits`` says."""

    make_decoder = ExitingDecoder
    _model: ExitingDecoder

    def __init__(self, config: ModelConfig, computation: Computation, **options: Any) -> None:
        super().__init__(config, computation, **options)
        self._exits = computation.exits
        depths, shares = zip(*sorted(computation.exits), strict=True)
        self._layers = [max(1, round(depth * config.layers)) for depth in depths]
        self._until = np.cumsum(shares)[:-1]

    @torch.inference_mode()
    def compute(self, step: StepInput) -> Tensor:
        """Return float32 logits [rows that sample, vocabulary]."""
        leaves = self._leaves(step)
        if min(leaves) == self._config.layers:
            return super().compute(step)
        order, stages = self._stages(step, leaves)
        place = {row: at for at, row in enumerate(order)}
        device = self._device
        ids, positions, rows = (
            to_device(ints, device)
            for ints in (step.token_ids, step.positions, [place[row] for row in step.sampled_rows])
        )
        attend = self._attention.plan(step.entries)
        length = max(step.positions) + 1
        return self._model.forward_leaving(ids, positions, length, attend, stages, self.store, rows)

    def describe(self) -> dict[str, object]:
        """Return what a runner says, and where decodes leave."""
        return super().describe() | {"exits": [list(pair) for pair in self._exits]}

    def _leaves(self, step: StepInput) -> list[int]:
        """Return after how many layers each entry leaves."""
        starts = np.cumsum([0, *(entry.rows for entry in step.entries)])[:-1]
        token_ids, positions = np.array(step.token_ids), np.array(step.positions)
        bits = row_bits(token_ids[starts].tolist(), positions[starts].tolist(), _STREAM)
        drawn = uniforms(bits)
        found = self._until.searchsorted(drawn, side="right")
        last = self._config.layers
        return [
            self._layers[exit_] if _decodes(entry) else last
            for entry, exit_ in zip(step.entries, found.tolist(), strict=True)
        ]

    def _stages(self, step: StepInput, leaves: list[int]) -> tuple[list[int], dict[int, Stage]]:
        """Return the rows in the order in which they end, the last to leave first, and the stages.

        A row that leaves is the only one of its entry.
        """
        starts = np.cumsum([0, *(entry.rows for entry in step.entries)]).tolist()
        going, gone = list(range(len(step.entries))), list[int]()
        stages: dict[int, Stage] = {}
        for layer in sorted(set(leaves) - {self._config.layers}):
            leaving = [at for at in going if leaves[at] == layer]
            staying = [at for at in going if leaves[at] != layer]
            stages[layer] = self._stage(step.entries, going, leaving, staying)
            going, gone = staying, gone + leaving
        ended = [row for at in going for row in range(starts[at], starts[at + 1])]
        return ended + [starts[at] for at in gone], stages

    def _stage(
        self,
        entries: list[ScheduledSequence],
        going: list[int],
        leaving: list[int],
        staying: list[int],
    ) -> Stage:
        lengths = [entries[at].rows for at in going]
        firsts = dict(zip(going, np.cumsum([0, *lengths]).tolist(), strict=False))
        stay = [firsts[at] + row for at in staying for row in range(entries[at].rows)]
        slots = [self.store.slot(entries[at].seq, entries[at].start) for at in leaving]
        left = [firsts[at] for at in leaving]
        staying_rows, leaving_rows, written = (
            to_device(ints, self._device) for ints in (stay, left, slots)
        )
        own = [entries[at] for at in staying]
        attend = self._attention.plan(own) if own else None
        return Stage(staying_rows, leaving_rows, written, attend)


def _decodes(entry: ScheduledSequence) -> bool:
    """Return whether the entry is the last token of a sequence that has some."""
    seq = entry.seq
    return is_decode(entry) and bool(entry.tokens) and entry.start >= seq.prompt_tokens
