"""Textbook formulas that the tests hold the simulator to: intensities, phases, shapes of a block.

Quantisation grids and the loss of distillation stand here too.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sim.shapes.feed_forward import Dense
from sim.shapes.hardware import Hardware
from sim.shapes.mixers import Attention
from sim.shapes.model import ModelShape
from sim.step_times.roofline.decode_latency import SECONDS_PER_DAY
from sim.step_times.roofline.matrix_products import BF16_BYTES
from sim.step_times.roofline.operators import full_pairs
from workloads.errors import PolicyError

ELEMENT_BYTES = 2
FloatArray = npt.NDArray[np.float64]
Shape = tuple[int, int]


def matmul_intensity(
    rows: float, inner: float, columns: float, element_bytes: float = BF16_BYTES
) -> float:
    """FLOP/byte of (rows x inner) (inner x columns): tends to rows for wide matrices at 2 bytes."""
    elements = rows * inner + inner * columns + rows * columns
    return 2 * rows * inner * columns / elements / element_bytes


def gated_ffn_intensity(tokens: float, width: float, inner: float) -> float:
    """FLOP/byte of a gated FFN at 2 bytes: 6 T D F / (4 T D + 4 T F + 6 D F), about T.

    Input and output, gate and up projection travel once each; their product is fused.
    """
    flops = 6 * tokens * width * inner
    return flops / (4 * tokens * width + 4 * tokens * inner + 6 * width * inner)


def attention_intensity(queries: float, keys: float, width: float, batch: float = 1) -> float:
    """FLOP/byte of FlashAttention at 2 bytes: T S / (T + S), whatever the batch and the width."""
    flops = 4 * batch * queries * keys * width
    return flops / (4 * batch * (queries + keys) * width)


def attention_limit_flops_per_element(head_dim: int) -> float:
    """What attention tends to for many queries and keys, scores through memory: 2 e."""
    return 2.0 * head_dim


def per_second(per_day: float) -> float:
    """A daily volume, spread evenly."""
    return per_day / SECONDS_PER_DAY


@dataclass(frozen=True, slots=True)
class Phases:
    """``batch`` requests of ``prompt_tokens`` and ``output_tokens``, at 2 bytes per number."""

    model: ModelShape
    batch: int
    prompt_tokens: int
    output_tokens: int

    @property
    def generation_passes(self) -> int:
        """The context pass makes the first token, each generation pass one more."""
        return self.output_tokens - 1

    @property
    def kv_entries(self) -> int:
        """Positions of a request in the KV cache at its end: its last token is never fed back."""
        return self.prompt_tokens + self.generation_passes

    @property
    def context_flops(self) -> float:
        """Products with weights, of all prompt tokens."""
        return self._flops(self.prompt_tokens)

    @property
    def generation_flops(self) -> float:
        """Products with weights, of all generation passes."""
        return self._flops(self.generation_passes)

    @property
    def context_attention_flops(self) -> float:
        """Causal attention within the prompts: n (n + 1) / 2 pairs each."""
        pairs = self.batch * full_pairs(0, self.prompt_tokens)
        return pairs * sum(g.count * g.mixer.flops_per_pair() for g in self.model.layers)

    @property
    def context_intensity(self) -> float:
        """FLOP per byte of weights in the context pass: B n at 2 bytes."""
        return self.context_flops / self._layer_bytes()

    @property
    def generation_intensity(self) -> float:
        """FLOP per byte of weights in a generation pass: B at 2 bytes."""
        return self._flops(1) / self._layer_bytes()

    def context_s(self, hardware: Hardware, devices: int, weight_bytes: float) -> float:
        """Ideal time of the context pass, its attention left out."""
        return ideal_s(self.context_flops, weight_bytes, hardware, devices)

    def generation_step_s(self, hardware: Hardware, devices: int, weight_bytes: float) -> float:
        """Ideal time of one generation pass, its attention left out."""
        return ideal_s(self._flops(1), weight_bytes, hardware, devices)

    def total_s(self, hardware: Hardware, devices: int, weight_bytes: float) -> float:
        """Ideal time of the whole requests."""
        step_s = self.generation_step_s(hardware, devices, weight_bytes)
        return self.context_s(hardware, devices, weight_bytes) + self.generation_passes * step_s

    def _flops(self, tokens: int) -> float:
        return 2 * self.model.active_linear_params() * tokens * self.batch

    def _layer_bytes(self) -> float:
        return ELEMENT_BYTES * self.model.linear_params()


def activation_bytes(model: ModelShape, tokens: int) -> int:
    """One activation tensor between two layers: tokens x width."""
    return tokens * model.width * ELEMENT_BYTES


def ideal_s(flops: float, moved_bytes: float, hardware: Hardware, devices: int) -> float:
    """The roofline of ``devices`` that share the work evenly and talk for free."""
    compute_s = flops / hardware.peak("bf16")
    return max(compute_s, moved_bytes / hardware.memory_bytes_per_s) / devices


def decode_traffic_ratio(model: ModelShape, batch: int, context_tokens: int) -> float:
    """Bytes of a decode step (layers and KV) over those of a step with one sequence."""
    weights, kept = model.linear_params(), model.resident_kv_elements(context_tokens)
    return (weights + batch * kept) / (weights + kept)


def batch_where_kv_outweighs_weights(model: ModelShape, context_tokens: int) -> float:
    """Sequences whose KV weighs as much as the layers: there, traffic has doubled."""
    return model.linear_params() / model.resident_kv_elements(context_tokens)


def block_shapes(model: ModelShape, rows: int, context_tokens: int) -> dict[str, Shape]:
    """Shapes for ``rows`` new tokens that end a context of ``context_tokens``.

    Raises ``PolicyError`` where the first layer is no softmax attention with a dense FFN, or the
    rows are more than the context.
    """
    first = model.layers[0]
    mixer, ffn = first.mixer, first.ffn
    if not (isinstance(mixer, Attention) and isinstance(ffn, Dense)):
        raise PolicyError(f"{model.name}: shapes are those of softmax attention and a dense FFN")
    if not 1 <= rows <= context_tokens:
        raise PolicyError(f"{rows} rows cannot end a context of {context_tokens} tokens")
    return {
        "tokens": (model.vocabulary, rows),
        "block input": (model.width, rows),
        "query of a head": (mixer.head_dim, rows),
        "key of a head": (mixer.head_dim, rows),
        "cached keys before": (mixer.head_dim, context_tokens - rows),
        "cached keys": (mixer.head_dim, context_tokens),
        "scores of a head": (context_tokens, rows),
        "output of a head": (mixer.head_dim, rows),
        "all heads": (mixer.heads * mixer.head_dim, rows),
        "attention output": (model.width, rows),
        "FFN inside": (ffn.width, rows),
        "block output": (model.width, rows),
        "logits": (model.vocabulary, rows),
    }


@dataclass(frozen=True, slots=True)
class AffineGrid:
    """Q = R / S + Z, with ``scale`` S and ``zero_point`` Z; codes are ``lowest`` to ``highest``."""

    scale: float
    zero_point: float
    lowest: int
    highest: int

    @classmethod
    def over(
        cls, smallest: float, largest: float, lowest: int = -128, highest: int = 127
    ) -> "AffineGrid":
        """The grid that maps ``smallest`` to ``lowest`` and ``largest`` to ``highest``.

        S = (Rmax - Rmin) / (Qmax - Qmin); Z = Qmax - Rmax / S = Qmin - Rmin / S (Jacob 2018).
        Raises ``ValueError`` where a range is empty.
        """
        if smallest >= largest or lowest >= highest:
            raise ValueError(
                f"no grid from [{smallest}, {largest}] to [{lowest}, {highest}]: both ranges must "
                "ascend"
            )
        scale = (largest - smallest) / (highest - lowest)
        return cls(scale, lowest - smallest / scale, lowest, highest)

    @property
    def worst_error(self) -> float:
        """Of a number within the range: half a step."""
        return self.scale / 2

    def quantise(self, values: FloatArray) -> npt.NDArray[np.int64]:
        """The nearest codes; numbers out of range get the outermost ones."""
        codes = np.rint(values / self.scale + self.zero_point)
        return np.clip(codes, self.lowest, self.highest).astype(np.int64)

    def restore(self, codes: npt.NDArray[np.int64]) -> FloatArray:
        """R = S (Q - Z)."""
        real: FloatArray = (codes.astype(np.float64) - self.zero_point) * self.scale
        return real


def cross_entropy(target: FloatArray, predicted: FloatArray) -> float:
    """-sum_i target_i log predicted_i, in nats; where the target is 0, nothing is added."""
    counted = target > 0
    return float(-(target[counted] * np.log(predicted[counted])).sum())


def distillation_loss(
    teacher: FloatArray,
    softened_student: FloatArray,
    student: FloatArray,
    label: FloatArray,
    soft_share: float,
) -> float:
    """a L_soft + (1 - a) L_hard (Hinton 2015).

    L_soft compares ``teacher`` with ``softened_student``, both at the distillation temperature,
    L_hard the one-hot ``label`` with ``student`` at temperature 1.
    """
    soft = cross_entropy(teacher, softened_student)
    return soft_share * soft + (1 - soft_share) * cross_entropy(label, student)
