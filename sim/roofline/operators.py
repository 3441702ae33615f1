"""What a step computes and moves, operator by operator, on one of the devices that share it.

Linear operators depend on the rows of the step alone, decode attention on the contexts, prefill
attention on each chunk. Sources: Williams 2009 (roofline), Pope 2022 (transformer counts), Dao 2022
(attention's traffic); the counts are those of ``docs/techniques/roofline.md``.
"""

from dataclasses import dataclass

import numpy as np

from sim.roofline.deployment import ACTIVATION_BYTES, Deployment
from sim.shapes.feed_forward import Dense
from sim.shapes.mixers import Attention, Mixer
from sim.shapes.model import LayerGroup, ModelShape
from sim.step_time import FloatArray

STATE_BYTES = 2
STATE_FLOPS = 4
"""Multiply and add into the state, multiply and add out of it, per element and token."""
SCORE_PASSES = 4
"""Without FlashAttention: scores written, read by the softmax, written, read by the product."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of a step: FLOPs and bytes of memory traffic, over all layers that have it."""

    name: str
    flops: float
    moved_bytes: float

    @property
    def intensity(self) -> float:
        """FLOPs per byte."""
        return self.flops / self.moved_bytes if self.moved_bytes else float("inf")


def linear_operators(deployment: Deployment, rows: float, has_prefill: bool) -> list[Operator]:
    """The operators of ``rows`` tokens in all layers; the head is its own."""
    model, ranks = deployment.model, deployment.parallel.tensor
    weight = (deployment.prefill if has_prefill else deployment.decode).weight_bytes
    computed = read = 1.0
    if deployment.early_exit and not has_prefill:
        computed = deployment.early_exit.mean_depth()
        read = deployment.early_exit.read_depth(rows)
    shared_rows = rows / deployment.parallel.sequence if has_prefill else rows
    operators = []
    for group in model.layers:
        count = group.count / ranks
        mixer, width = group.mixer.params(model.width), model.width
        operators.append(
            Operator(
                "projections",
                2 * mixer * shared_rows * count * computed,
                mixer * weight * count * read,
            )
        )
        operators.append(_feed_forward(deployment, group, shared_rows, weight, computed, read))
        state = group.mixer.state_elements() * count
        if state and not has_prefill:
            operators.append(
                Operator("state", STATE_FLOPS * state * rows, 2 * STATE_BYTES * state * rows)
            )
        if not deployment.kernels.fused:
            moved = _activation_elements(group, width) * shared_rows * group.count
            operators.append(Operator("activations", 0, moved * ACTIVATION_BYTES))
    written = model.kv_elements_per_token() * deployment.kv_element_bytes / kv_ranks(deployment)
    operators.append(Operator("KV write", 0, written * rows))
    return operators


def head_operator(deployment: Deployment, logit_rows: float, has_prefill: bool) -> Operator:
    """The output head, for the rows that need logits."""
    weight = (deployment.prefill if has_prefill else deployment.decode).weight_bytes
    head = deployment.model.head_params() / deployment.parallel.tensor
    return Operator("head", 2 * head * logit_rows, head * weight if logit_rows else 0.0)


def decode_attention(
    deployment: Deployment, mixer: Mixer, context_tokens: float, layers: int
) -> Operator:
    """``layers`` layers of decodes that attend to ``context_tokens`` in all."""
    flops = mixer.decode_flops_per_pair() / deployment.parallel.tensor
    moved = mixer.kv_elements() * kv_sharing(mixer) * deployment.kv_element_bytes
    return Operator(
        "decode attention",
        flops * context_tokens * layers / deployment.parallel.sequence,
        moved / kv_ranks(deployment) * context_tokens * layers,
    )


def prefill_attention(deployment: Deployment, group: LayerGroup, start: int, rows: int) -> Operator:
    """A chunk of ``rows`` tokens behind ``start`` others, in all layers of ``group``."""
    mixer, parallel = group.mixer, deployment.parallel
    if isinstance(mixer, Attention):
        pairs, seen = seen_pairs(mixer, start, rows), _seen_keys(mixer, start, rows)
        heads = mixer.heads
    else:
        pairs, seen = full_pairs(start, rows), float(start + rows)
        heads = getattr(mixer, "heads", 0)
    flops = mixer.flops_per_pair() * pairs / parallel.tensor / parallel.sequence
    moved = mixer.kv_elements() * kv_sharing(mixer) * deployment.kv_element_bytes * seen
    moved /= kv_ranks(deployment)
    if not deployment.kernels.flash_attention:
        scores = heads / parallel.tensor * rows * seen
        moved += SCORE_PASSES * ACTIVATION_BYTES * scores / parallel.sequence
    state = mixer.state_elements()
    return Operator(
        "prefill attention",
        group.count * (flops + STATE_FLOPS * state * rows / parallel.tensor),
        group.count * (moved + 2 * STATE_BYTES * state),
    )


def full_pairs(start: int, rows: int) -> float:
    """Pairs of a causal chunk: n p + n (n + 1) / 2."""
    return rows * start + rows * (rows + 1) / 2


def seen_pairs(mixer: Attention, start: int, rows: int) -> float:
    """Pairs within the window: query i sees at most window + sinks tokens, every dilation-th."""
    if mixer.window_tokens is None:
        return full_pairs(start, rows)
    limit = mixer.window_tokens + mixer.sink_tokens
    inside = min(max(limit - start, 0), rows)  # queries that see everything before them
    pairs = full_pairs(start, inside) + (rows - inside) * limit
    return pairs / mixer.dilation


def visible(mixer: Attention, contexts: FloatArray) -> FloatArray:
    """Tokens of each context that a decode reads: the window, every dilation-th, the sinks."""
    if mixer.window_tokens is not None:
        window = np.minimum(contexts, mixer.window_tokens) / mixer.dilation
        return np.minimum(contexts, window + mixer.sink_tokens)
    if mixer.budget_tokens is not None:
        return np.minimum(contexts, mixer.budget_tokens)
    return contexts / mixer.dilation


def _seen_keys(mixer: Attention, start: int, rows: int) -> float:
    """Keys that a chunk reads: its own, and what its first query still sees before it."""
    if mixer.window_tokens is None:
        return float(start + rows)
    return rows + min(start, mixer.window_tokens + mixer.sink_tokens) / mixer.dilation


def kv_sharing(mixer: Mixer) -> int:
    """Layers share what they keep (CLA), but each one reads it."""
    return mixer.kv_sharing if isinstance(mixer, Attention) else 1


def kv_ranks(deployment: Deployment) -> float:
    """Over how many devices a context is spread: whole KV heads by tensor, tokens by sequence."""
    parallel = deployment.parallel
    return parallel.tensor / deployment.kv_replication * parallel.sequence


def all_params(model: ModelShape) -> float:
    """Weights that a product uses: the layers and the head."""
    return model.linear_params() + model.head_params()


def _feed_forward(
    deployment: Deployment,
    group: LayerGroup,
    rows: float,
    weight: float,
    computed: float,
    read: float,
) -> Operator:
    ffn, width, parallel = group.ffn, deployment.model.width, deployment.parallel
    ranks = parallel.tensor
    if not isinstance(ffn, Dense):
        ranks = max(ranks, parallel.expert)
    count = group.count / ranks
    return Operator(
        "FFN" if isinstance(ffn, Dense) else "experts",
        2 * ffn.active_params(width) * rows * count * computed,
        ffn.touched_params(width, rows) * weight * count * read,
    )


def _activation_elements(group: LayerGroup, width: int) -> float:
    """About 10 d + 4 f per token and layer where nothing is fused."""
    ffn = group.ffn
    inner = ffn.width if isinstance(ffn, Dense) else ffn.top_k * ffn.width + ffn.shared_width
    return 10 * width + 4 * inner
