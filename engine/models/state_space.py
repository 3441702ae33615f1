"""Layers that keep a state instead of keys and values: Mamba 2.

Dao and Gu 2024, arXiv 2405.21060: a head's state decays with each row by exp(step x rate), takes in
the row times what writes it, and is read by what reads it. Rows of a prompt are computed together
(section 6): a piece sees itself as attention whose scores decay, and the state before it.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from servetwin.engine.kv.state_store import State, StateRun, StateStep
from servetwin.engine.models.linear import MakeLinear, biased
from servetwin.engine.models.model_config import ModelConfig
from servetwin.engine.models.weights import LayerWeights

# Scores within a piece grow with its square, and further ones with the number of pieces.
_PIECE_ROWS = 64


class StateSpace:
    """The mixer of a layer of Mamba 2, a gated norm and the products around it."""

    absorbed_bytes = 0

    def __init__(self, config: ModelConfig, weights: LayerWeights, make_linear: MakeLinear) -> None:
        space = config.state_space
        assert space is not None
        self._eps, self._sizes = config.norm_eps, space.sizes
        self._in, self._out = (
            biased(make_linear(name, weights[name]), weights.get(f"{name}_bias"))
            for name in ("state_in", "state_out")
        )
        self._taps = weights["convolution"].squeeze(1).T.float()  # [kernel, width]
        self._tap_bias = weights.get("convolution_bias")
        self._rates = -weights["decay"].double().exp()
        self._step_bias, self._skip = weights["step_bias"].float(), weights["skip"].float()
        self._norm = weights["gated_norm"].view(self._sizes.groups, -1)

    def __call__(
        self, layer: int, x: Tensor, cos: Tensor, sin: Tensor, states: StateStep
    ) -> Tensor:
        """Map [rows, hidden size] to the same shape; states are kept on the way."""
        del cos, sin
        sizes = self._sizes
        parts = (sizes.inner, sizes.convolved, sizes.heads)
        gate, inputs, steps = self._in(x).split_with_sizes(parts, 1)
        steps = F.softplus(steps.float() + self._step_bias)
        outputs = steps.new_zeros(len(x), sizes.heads, sizes.head_dim)
        for run in states.runs[layer]:
            before = states.before(layer, run) or self._nothing(inputs)
            outputs[run.rows], behind = self._run(run, inputs[run.rows], steps[run.rows], before)
            states.leave(layer, run, behind)
        gated = (outputs.flatten(1) * F.silu(gate.float())).view(len(x), sizes.groups, -1)
        scale = ((gated * gated).mean(2, keepdim=True) + self._eps).rsqrt()
        normed = (gated * scale).to(x.dtype) * self._norm
        return self._out(normed.flatten(1))

    def _nothing(self, inputs: Tensor) -> State:
        """Return the state of one sequence before its first row."""
        sizes = self._sizes
        kept = inputs.new_zeros(1, sizes.heads, sizes.head_dim, sizes.state_dim)
        return inputs.new_zeros(1, sizes.kernel - 1, sizes.convolved), kept.float()

    def _run(
        self, run: StateRun, inputs: Tensor, steps: Tensor, before: State
    ) -> tuple[Tensor, State]:
        """Return the outputs [rows, heads, head dim] of a run, and the states behind it."""
        earlier, kept = before
        if isinstance(run.rows, slice):
            seen = torch.cat((earlier[0], inputs))
            windows = seen.unfold(0, self._sizes.kernel, 1).mT
            outputs, kept = self._scan(*self._convolved(windows), steps, kept)
            return outputs, (seen[len(inputs) :].unsqueeze(0), kept)
        seen = torch.cat((earlier, inputs.unsqueeze(1)), 1)
        outputs, kept = self._advance(*self._convolved(seen), steps, kept)
        return outputs, (seen[:, 1:], kept)

    def _convolved(self, seen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return what goes into states [rows, heads, head dim], and what writes and what reads
        them [rows, heads, state dim], of what the convolution sees [rows, kernel, width].
        """
        sizes = self._sizes
        mixed = (seen.float() * self._taps).sum(1)
        if self._tap_bias is not None:
            mixed = mixed + self._tap_bias
        shared = sizes.groups * sizes.state_dim
        values, *others = F.silu(mixed).split_with_sizes((sizes.inner, shared, shared), 1)
        writes, reads = (
            part.view(len(seen), sizes.groups, -1).repeat_interleave(sizes.heads // sizes.groups, 1)
            for part in others
        )
        return values.view(len(seen), sizes.heads, -1), writes, reads

    def _advance(
        self, values: Tensor, writes: Tensor, reads: Tensor, steps: Tensor, kept: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the outputs and states behind one row of each of several sequences."""
        decay = (steps * self._rates).exp().float()
        added = (values * steps.unsqueeze(2)).unsqueeze(3) * writes.unsqueeze(2)
        kept = kept * decay[:, :, None, None] + added
        outputs = (kept @ reads.unsqueeze(3)).squeeze(3)
        return outputs + values * self._skip[:, None], kept

    def _scan(
        self, values: Tensor, writes: Tensor, reads: Tensor, steps: Tensor, kept: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the outputs of the rows of one sequence, and the state behind them."""
        outputs, state = [], kept[0]
        for first in range(0, len(values), _PIECE_ROWS):
            rows = slice(first, first + _PIECE_ROWS)
            piece = values[rows], writes[rows], reads[rows], steps[rows]
            output, state = self._piece(*piece, state)
            outputs.append(output)
        return torch.cat(outputs) + values * self._skip[:, None], state.unsqueeze(0)

    def _piece(
        self, values: Tensor, writes: Tensor, reads: Tensor, steps: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the outputs of a piece without the skipped part, and the state behind it.

        Sums of logarithms of decays are in float64, since their small differences count.
        """
        logs = (steps * self._rates).cumsum(0).T  # [heads, rows]
        added, written, read = (
            part.transpose(0, 1) for part in (values * steps.unsqueeze(2), writes, reads)
        )
        later = torch.ones(logs.shape[1:] * 2, dtype=torch.bool, device=logs.device).triu(1)
        gaps = (logs.unsqueeze(2) - logs.unsqueeze(1)).masked_fill(later, -torch.inf)
        scores = (read @ written.mT) * gaps.exp().float()
        before = (read @ state.mT) * logs.exp().float().unsqueeze(2)
        left = (logs[:, -1:] - logs).exp().float()
        behind = (added * left.unsqueeze(2)).mT @ written
        state = state * logs[:, -1].exp().float()[:, None, None] + behind
        return (scores @ added + before).transpose(0, 1), state
