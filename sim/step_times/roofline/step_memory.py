"""The memory of the largest step of a server, beside weights, keys and values.

Buffers live for a few operators of one layer, and the next layer takes the same ones: the peak is
the largest stage of a layer, its attention, or the logits behind the last layer. Attention without
FlashAttention (Dao 2022) keeps the scores of every head for all pairs of a row and a key; with it,
nothing that grows with the pairs. A test measures the peak of the bundled engine.

``ServerMemory`` says what a server takes of a device for all of that.
"""

from dataclasses import dataclass, replace
from math import ceil

from servetwin.sim.catalogue.hardware import Hardware
from servetwin.sim.catalogue.layers import Attention, Dense, FeedForward, LatentAttention, Mixer
from servetwin.sim.catalogue.model import LayerGroup, ModelShape

# Elements per row of each buffer that lives.
Buffers = tuple[float, ...]


def _layer_buffers(
    group: LayerGroup, width: int, ranks: int, fused: bool
) -> tuple[tuple[Buffers, ...], Buffers]:
    """Return the buffers that live at the same time in a layer on one of ``ranks`` devices.

    Those of each stage between attention and the next layer, and those while attention runs. Fused
    kernels reuse buffers: beside the residual, only an operator's input and output live. Where
    nothing is reused, these are the tensors that have a name in a layer of the bundled engine.
    """
    projected, rotated, mixed = (part / ranks for part in _mixer_elements(group.mixer, width))
    inner, active, routed = _ffn_elements(group.ffn, width)
    inner, active = inner / ranks, active / ranks
    if not fused:
        before = (width, width)  # the residual, and what the last layer adds to it
        attention = (*before, width, width, projected, rotated, mixed)  # their sum, its norm
        network = (*before, width, width, width, active, routed)
        return ((*network, inner), (*network, width)), attention
    pairs = ((width, projected), (mixed, width), (width, inner), (inner, active), (active, width))
    return tuple((width, routed, *pair) for pair in pairs), (width, projected, mixed)


def _mixer_elements(mixer: Mixer, width: int) -> tuple[float, float, float]:
    """Return the elements that the projections, the rotation and attention itself write."""
    if isinstance(mixer, Attention):
        queries, keys = mixer.heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim
        return queries + 2 * keys, queries + keys, queries
    if isinstance(mixer, LatentAttention):
        per_head = 2 * (mixer.nope_dim + mixer.rope_dim) + mixer.value_dim
        projected = mixer.heads * per_head + mixer.latent_dim + mixer.rope_dim
        return projected, mixer.heads * mixer.rope_dim, mixer.heads * mixer.value_dim
    return mixer.params(width) / width, 0, width  # a column of each weight makes an element


def _ffn_elements(ffn: FeedForward, width: int) -> tuple[float, float, float]:
    """Return the elements that the first products and the activation write, and expert copies."""
    if isinstance(ffn, Dense):
        return max(0, ffn.matrices - 1) * ffn.width, ffn.width * bool(ffn.matrices), 0
    active = ffn.top_k * ffn.width + ffn.shared_width
    return (ffn.matrices - 1) * active, active, ffn.top_k * width


# Logits are compared in float32, whatever the head computes in.
LOGIT_BYTES = 4
# Per logit where a token is drawn: the logits, their distribution, random bits, the times that
# these stand for, and the quotient of both, in 4 bytes each.
DRAWN_LOGIT_BYTES = 20
# Without FlashAttention: scores, and their softmax.
SCORE_TENSORS = 2

_MIB = 2**20


@dataclass(frozen=True, slots=True)
class LargestStep:
    """The largest step: its rows, how many of them have logits, and the longest context.

    ``draws``: tokens are drawn at random, not the likeliest ones taken.
    """

    rows: float
    logit_rows: float
    context_tokens: float
    draws: bool = True


@dataclass(frozen=True, slots=True)
class StepMemory:
    """The bytes of every tensor that lives at the peak of a step, on one device."""

    activations: tuple[float, ...] = ()
    scores: tuple[float, ...] = ()
    logits: tuple[float, ...] = ()

    @property
    def allocated_bytes(self) -> float:
        """Return the bytes of all tensors together."""
        return sum(self._tensors)

    @property
    def fragmentation_bytes(self) -> float:
        """Return the bytes that torch's caching allocator reserves but does not hand out.

        It takes 2 MiB for up to 1 MiB, 20 MiB below 10 MiB, and above it multiples of 2 MiB.
        """
        return sum(_segment_bytes(size) - size for size in self._tensors)

    @property
    def _tensors(self) -> tuple[float, ...]:
        return (*self.activations, *self.scores, *self.logits)


@dataclass(frozen=True, slots=True)
class StepBuffers:
    """How the buffers of a step come about: numbers of ``element_bytes``, on one of ``ranks``.

    Not ``fused``, as in eager PyTorch: all that a layer has written into a name lives until the
    layer ends, angles of positions and a mask of rows and keys until the step ends, and attention
    reads a copy of a sequence's keys and values. ``kept``: further rows of the model's width.
    """

    element_bytes: float
    fused: bool = True
    flash_attention: bool = True
    ranks: int = 1
    kept: int = 0

    def peak(self, model: ModelShape, step: LargestStep) -> StepMemory:
        """Return the tensors that live where a step of ``model`` needs most."""
        moments = [self._head(model, step)]
        if step.draws:
            logit_bytes = step.logit_rows * model.vocabulary * DRAWN_LOGIT_BYTES
            moments.append(StepMemory(logits=(logit_bytes,)))
        for group in model.layers:
            stages, attention = _layer_buffers(group, model.width, self.ranks, self.fused)
            moments += [self._activations(group.mixer, step, stage) for stage in stages]
            beside = self._activations(group.mixer, step, attention)
            moments.append(replace(beside, scores=self._scores(group.mixer, step)))
        return max(moments, key=lambda moment: moment.allocated_bytes)

    def _head(self, model: ModelShape, step: LargestStep) -> StepMemory:
        """Return the logits beside the rows that they come from."""
        each = LOGIT_BYTES + (0 if self.element_bytes == LOGIT_BYTES else self.element_bytes)
        rows = self._activations(model.layers[-1].mixer, step, (model.width,))
        return replace(rows, logits=(step.logit_rows * model.vocabulary * each,))

    def _activations(self, mixer: Mixer, step: LargestStep, stage: Buffers) -> StepMemory:
        """Return the buffers of a stage, beside what the whole step keeps."""
        elements = [buffer * step.rows for buffer in stage]
        elements += [stage[0] * step.rows] * self.kept
        if not self.fused:
            angles = 2 * mixer.head_dim if isinstance(mixer, Attention) else 0
            mask = step.rows * step.context_tokens
            elements += [angles * (step.rows + step.context_tokens), mask]
        return StepMemory(tuple(count * self.element_bytes for count in elements))

    def _scores(self, mixer: Mixer, step: LargestStep) -> tuple[float, ...]:
        """Return the copied keys and values of one layer, and the scores."""
        copied = 0 if self.fused else step.context_tokens * mixer.kv_elements()
        heads = 0 if self.flash_attention else getattr(mixer, "heads", 0) / self.ranks
        scores = [heads * step.rows * step.context_tokens] * SCORE_TENSORS
        return tuple(count * self.element_bytes for count in (copied, *scores))


def _segment_bytes(size_bytes: float) -> float:
    """Return the bytes that torch's caching allocator asks the device for."""
    if size_bytes <= 0:
        return 0.0
    if size_bytes < 10 * _MIB:
        return 2.0 * _MIB if size_bytes <= _MIB else 20.0 * _MIB
    return 2.0 * _MIB * ceil(size_bytes / (2 * _MIB))


# On each device, the driver's context and the workspace of libraries.
RUNTIME_BYTES = 0.5e9


@dataclass(frozen=True, slots=True)
class ServerMemory:
    """The ``share`` of a device's memory that weights, the largest step and keys may take.

    ``runtime_bytes`` on each device are the driver's context and workspaces. ``free_share``: keys
    and values take so much of what weights and step leave (TensorRT-LLM). ``is_reported``: a share
    of what the driver reports, not of the data sheet. ``is_profiled``: the largest step is the one
    that vLLM runs as it starts, which keeps two more rows of the model's width and draws no token.
    ``holds_steps``: the share contains the largest step; SGLang's does not.
    """

    share: float = 1.0
    runtime_bytes: float = RUNTIME_BYTES
    free_share: float = 1.0
    is_reported: bool = False
    is_profiled: bool = False
    holds_steps: bool = True

    @property
    def kept_rows(self) -> int:
        """Rows of the model's width that live through a layer beside the residual."""
        return 2 if self.is_profiled else 0

    def device_bytes(self, hardware: Hardware) -> float:
        """Return the memory of a device of which the server has a share."""
        reported = hardware.reported_bytes if self.is_reported else None
        return reported or hardware.memory_bytes


ALL_MEMORY = ServerMemory()
