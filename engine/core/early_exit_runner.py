"""A runner whose decodes leave the layers early, by given shares.

With random weights no confidence says which token may leave. So a number drawn by the token and
its position does, equally for equal contents: a token leaves at a depth as often as its share says,
independently of the others, as the formula of the technique assumes. Prompts go through all layers,
and so does what is computed again after a preemption.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Unpack

import numpy as np
import torch
from torch import Tensor

from servetwin.engine.attention.step_attention import Attend, is_decode
from servetwin.engine.core.runner import Runner, RunnerOptions
from servetwin.engine.core.step_input import StepInput
from servetwin.engine.kv.kv_store import KVStore
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.device import to_device
from servetwin.engine.models.linear import MakeLinear
from servetwin.engine.models.model import Decoder
from servetwin.engine.models.model_config import ModelConfig
from servetwin.engine.models.weights import Weights
from servetwin.engine.sampling.noise import row_bits, uniforms
from servetwin.policies.batch import ScheduledSequence
from servetwin.workloads.errors import EngineError

# Of random numbers that nothing else uses.
_STREAM = 1 << 20


@dataclass(frozen=True, slots=True)
class Stage:
    """What changes before a layer: some of the rows that went so far leave."""

    stay: Tensor
    leave: Tensor
    slots: Tensor
    """Where the keys and values of the leaving rows belong."""
    attend: Attend | None
    """Attention of the rows that stay; None where none does."""


class ExitingDecoder(Decoder):
    """A decoder whose rows may leave early (CALM, Schuster et al., 2022).

    The layers that a row has skipped get its keys and values all the same, made of the state in
    which it left: later tokens attend to it in every layer.
    """

    skippable = True

    def __init__(self, config: ModelConfig, weights: Weights, make_linear: MakeLinear) -> None:
        if config.latent or not config.plain_layers:
            raise EngineError(f"early exit: layers of {config.name} differ from Llama's")
        super().__init__(config, weights, make_linear)

    def forward_leaving(
        self, token_ids: Tensor, positions: Tensor, length: int, attend: Attend | None,
        stages: Mapping[int, Stage], store: KVStore, rows: Tensor,
    ) -> Tensor:  # fmt: skip
        """Return logits as ``forward`` does; ``stages`` are by the layer before which they are.

        ``rows`` count those that stay to the end first, then those that left, in their order.
        """
        x = self._embedding.index_select(0, token_ids)
        cos, sin = self._tables[0].at(positions, length)
        gone = [tensor[:0] for tensor in (x, cos, sin)]
        slots = token_ids[:0]
        delta: Tensor | None = None
        for index, layer in enumerate(self._layers):
            if (stage := stages.get(index)) is not None:
                x, delta = x if delta is None else x + delta, None
                left = (tensor.index_select(0, stage.leave) for tensor in (x, cos, sin))
                gone = [torch.cat(pair) for pair in zip(gone, left, strict=True)]
                slots = torch.cat((slots, stage.slots))
                x, cos, sin = (tensor.index_select(0, stage.stay) for tensor in (x, cos, sin))
                attend = stage.attend
            if attend is not None:
                x, delta = layer(index, x, delta, cos, sin, attend)
            if layer.stores and len(slots):
                store.write(index, slots, *layer.skip(*gone))
        x = x if delta is None else x + delta
        x = torch.cat((x, gone[0])).index_select(0, rows)
        _, normed = self._norm(x, None)
        return self._head(normed).float()


class EarlyExitRunner(Runner):
    """A runner with exits, as ``Computation.exits`` says."""

    make_decoder = ExitingDecoder
    _model: ExitingDecoder

    def __init__(
        self, config: ModelConfig, computation: Computation, **options: Unpack[RunnerOptions]
    ) -> None:
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
        numbers = uniforms(bits)
        exits = self._until.searchsorted(numbers, side="right")
        last = self._config.layers
        return [
            self._layers[exit_] if _decodes(entry) else last
            for entry, exit_ in zip(step.entries, exits.tolist(), strict=True)
        ]

    def _stages(self, step: StepInput, leaves: list[int]) -> tuple[list[int], dict[int, Stage]]:
        """Return the rows in the order in which they end, the last to leave first, and the stages.

        A row that leaves is the only one of its entry.
        """
        entries, stages = step.entries, dict[int, Stage]()
        owners = [at for at, entry in enumerate(entries) for _ in range(entry.rows)]
        rows, gone = list(range(len(owners))), list[int]()
        for layer in sorted(set(leaves) - {self._config.layers}):
            stay = [at for at, row in enumerate(rows) if leaves[owners[row]] != layer]
            leave = [at for at, row in enumerate(rows) if leaves[owners[row]] == layer]
            leaving = [entries[owners[rows[at]]] for at in leave]
            slots = [self.store.slot(entry.seq, entry.start) for entry in leaving]
            gone += [rows[at] for at in leave]
            rows = [rows[at] for at in stay]
            staying = [entries[at] for at in dict.fromkeys(owners[row] for row in rows)]
            attend = self._attention.plan(staying) if staying else None
            indices = [to_device(ints, self._device) for ints in (stay, leave, slots)]
            stages[layer] = Stage(indices[0], indices[1], indices[2], attend)
        return rows + gone, stages


def _decodes(entry: ScheduledSequence) -> bool:
    """Return whether the entry is the last token of a sequence that has some."""
    seq = entry.seq
    return is_decode(entry) and bool(entry.tokens) and entry.start >= seq.prompt_tokens
