"""The FLOPs and bytes of a step, operator by operator, on one of the devices that share it.

Linear operators depend on the rows of the step alone, decode attention on the contexts, prefill
attention on each chunk. Sources: Williams 2009 (roofline), Pope 2022 (transformer counts), Dao 2022
(attention's traffic); the counts are those of ``docs/techniques/roofline.md``.
"""

from dataclasses import dataclass
from math import ceil, inf

import numpy as np
import numpy.typing as npt

from servetwin.sim.catalogue.layers import Attention, Dense, Experts, Mixer
from servetwin.sim.catalogue.model import LayerGroup
from servetwin.sim.step_times.roofline.deployment import Deployment, Part
from servetwin.sim.step_times.roofline.formats import ACTIVATION_BYTES
from servetwin.sim.step_times.roofline.parallel import Parallel

IntArray = npt.NDArray[np.int64]

STATE_BYTES = 2
# Multiply and add, per element of a state, token and pass over it.
STATE_FLOPS = 2
# Without FlashAttention: scores written, read by the softmax, written, read by the product.
SCORE_PASSES = 4


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of a step: FLOPs and bytes of memory traffic, over all layers that have it.

    ``width`` is that of an expert on one device.
    """

    name: str
    flops: float
    moved_bytes: float
    width: float = inf

    @property
    def part(self) -> Part:
        """The part of the weights that it reads."""
        return "experts" if self.name == "experts" else "head" if self.name == "head" else "gemm"


def linear_operators(
    deployment: Deployment, rows: float, has_prefill: bool, groups: float = 1.0
) -> list[Operator]:
    """Return the operators of ``rows`` tokens in all layers, without the head.

    Experts serve all ``groups``, each with ``rows`` of its own (``Parallel.spread``).
    """
    model, ranks = deployment.model, deployment.parallel.tensor
    form, expert_form = deployment.form(has_prefill), deployment.form(has_prefill, "experts")
    weight = form.weight_bytes
    computed = read = 1.0
    if deployment.early_exit and not has_prefill:
        computed = deployment.early_exit.mean_depth()
        read = deployment.early_exit.read_depth(rows)
    shared_rows = rows / deployment.parallel.sequence if has_prefill else rows
    expert_ranks = deployment.parallel.expert_ranks
    copies = deployment.parallel.stage_devices / expert_ranks  # of all experts
    expert_rows = rows * groups / (copies if has_prefill else 1)
    operators = []
    for group in model.layers:
        count = group.count / ranks
        mixer, width = group.mixer.params(model.width), model.width
        flops = 2 * mixer * shared_rows * count * computed
        operators.append(Operator("projections", flops, mixer * weight * count * read))
        ffn, is_dense = group.ffn, isinstance(group.ffn, Dense)
        fed_rows = shared_rows if is_dense else expert_rows
        count = group.count / (ranks if is_dense else expert_ranks)
        flops = 2 * ffn.active_params(width) * fed_rows * count * computed
        moved = ffn.touched_params(width, fed_rows) * weight * count * read
        if isinstance(ffn, Experts) and expert_form != form:
            touched = ffn.touched_experts(fed_rows) * ffn.expert_params(width) * count * read
            moved += touched * (expert_form.weight_bytes - weight)
        expert_width = ffn.width * deployment.parallel.expert / expert_ranks
        operators.append(Operator("FFN" if is_dense else "experts", flops, moved, expert_width))
        if deployment.adapters:
            adapter = deployment.adapters.layer_params(group, width) * group.count / ranks
            used = min(deployment.adapters.slots, rows)
            moved = adapter * used * ACTIVATION_BYTES
            operators.append(Operator("adapters", 2 * adapter * shared_rows, moved))
        if form.scaling_bytes:
            moved = _product_inputs(group, width) * shared_rows * group.count
            operators.append(Operator("activation scales", 0, moved * form.scaling_bytes))
        if not deployment.kernels.fused:
            moved = _activation_elements(group, width) * shared_rows * group.count
            operators.append(Operator("activations", 0, moved * ACTIVATION_BYTES))
    written = model.kv_elements_per_token() * deployment.kv_element_bytes / kv_ranks(deployment)
    operators.append(Operator("KV write", 0, written * rows))
    return operators


def head_operator(deployment: Deployment, logit_rows: float, has_prefill: bool) -> Operator:
    """Return the output head, for the rows that need logits."""
    weight = deployment.form(has_prefill, "head").weight_bytes
    head = deployment.model.head_params() / deployment.parallel.tensor
    return Operator("head", 2 * head * logit_rows, head * weight if logit_rows else 0.0)


def decode_attention(
    deployment: Deployment, mixer: Mixer, context_tokens: float, layers: int
) -> Operator:
    """Return the attention of decodes that see ``context_tokens`` in all, in ``layers`` layers."""
    flops = mixer.decode_flops_per_pair() / deployment.parallel.tensor * context_tokens * layers
    moved = read_kv_bytes(deployment, mixer, context_tokens) * layers
    return Operator("decode attention", flops / deployment.parallel.sequence, moved)


def decode_state(deployment: Deployment, group: LayerGroup, sequences: float) -> Operator:
    """Return the traffic of the states of ``sequences``: reading, and writing unless fixed."""
    state = group.mixer.state_elements() * group.count / deployment.parallel.tensor * sequences
    passes = group.mixer.state_passes
    return Operator("state", STATE_FLOPS * passes * state, STATE_BYTES * passes * state)


def read_kv_bytes(deployment: Deployment, mixer: Mixer, tokens: float) -> float:
    """Return the bytes of keys and values of ``tokens`` that one layer reads on a device."""
    per_token = mixer.kv_elements() * kv_sharing(mixer) * deployment.kv_element_bytes
    return per_token / kv_ranks(deployment) * tokens


def prefill_attention(deployment: Deployment, group: LayerGroup, start: int, rows: int) -> Operator:
    """Return the attention of a chunk of ``rows`` tokens behind ``start`` others, in ``group``."""
    mixer, parallel = group.mixer, deployment.parallel
    pairs, keys = _rank_pairs(parallel, mixer, start, rows), seen_keys(mixer, start, rows)
    flops = mixer.flops_per_pair() * pairs / parallel.tensor
    moved = read_kv_bytes(deployment, mixer, keys) * parallel.sequence  # the ring brings them all
    if not deployment.kernels.flash_attention:
        scores = getattr(mixer, "heads", 0) / parallel.tensor * rows * keys
        moved += SCORE_PASSES * ACTIVATION_BYTES * scores / parallel.sequence
    state = decode_state(deployment, group, 1)  # a chunk loads and stores it once
    total = group.count * flops + state.flops * rows
    return Operator("prefill attention", total, group.count * moved + state.moved_bytes)


def verification_attention(
    deployment: Deployment, group: LayerGroup, start: int, rows: int
) -> Operator:
    """Return the attention of drafted ``rows`` behind ``start`` tokens, reading keys once for all.

    Every row attends to all rows before it, those of a tree to their ancestors only.
    """
    mixer, parallel = group.mixer, deployment.parallel
    pairs = float(visible(mixer, np.arange(start + 1, start + rows + 1)).sum())
    flops = mixer.decode_flops_per_pair() * pairs / parallel.tensor / parallel.sequence
    state = decode_state(deployment, group, 1)
    total = group.count * flops + state.flops * rows
    moved = read_kv_bytes(deployment, mixer, verified_keys(mixer, start, rows))
    return Operator("verification attention", total, group.count * moved + state.moved_bytes)


def verified_keys(mixer: Mixer, start: int, rows: int) -> int:
    """Return the keys that the drafted rows of a decode read, within the budget of decodes."""
    keys = seen_keys(mixer, start, rows)
    if not isinstance(mixer, Attention) or mixer.budget_tokens is None:
        return keys
    return min(keys, mixer.budget_tokens + rows - 1)


def _rank_pairs(parallel: Parallel, mixer: Mixer, start: int, rows: int) -> float:
    """Return the pairs of the busiest rank: an equal share, or the last piece without zig-zag."""
    if parallel.zig_zag:
        return seen_pairs(mixer, start, rows) / parallel.sequence
    piece = ceil(rows / parallel.sequence)
    return seen_pairs(mixer, start + rows - piece, piece)


def full_pairs(start: int, rows: int) -> float:
    """Return the pairs of a causal chunk: n p + n (n + 1) / 2."""
    return rows * start + rows * (rows + 1) / 2


def seen_pairs(mixer: Mixer, start: int, rows: int) -> float:
    """Return the pairs of a chunk's queries and the keys that each sees; a prompt drops none."""
    if not isinstance(mixer, Attention) or not _is_masked(mixer):
        return full_pairs(start, rows)
    return float(_in_mask(mixer, np.arange(start + 1, start + rows + 1)).sum())


def seen_keys(mixer: Mixer, start: int, rows: int) -> int:
    """Return the keys that a chunk reads: its own, and the earlier ones that any query sees."""
    if not isinstance(mixer, Attention) or not _is_masked(mixer):
        return start + rows
    reach = start if mixer.window_tokens is None else min(start, mixer.window_tokens - 1)
    before = reach * min(rows, mixer.dilation) // mixer.dilation
    return rows + min(start, before + mixer.sink_tokens)


def visible(mixer: Mixer, contexts: IntArray) -> IntArray:
    """Return the tokens of each context that a decode reads within mask and budget."""
    if not isinstance(mixer, Attention):
        return contexts
    tokens = _in_mask(mixer, contexts)
    return tokens if mixer.budget_tokens is None else np.minimum(tokens, mixer.budget_tokens)


def _is_masked(mixer: Attention) -> bool:
    return mixer.window_tokens is not None or mixer.dilation > 1


def _in_mask(mixer: Attention, contexts: IntArray) -> IntArray:
    """Return the tokens in the window, every dilation-th of them, and the sinks."""
    if not _is_masked(mixer):
        return contexts
    window = contexts
    if mixer.window_tokens is not None:
        window = np.minimum(contexts, mixer.window_tokens)
    tokens: IntArray = -(-window // mixer.dilation) + mixer.sink_tokens
    return np.minimum(contexts, tokens)


def kv_sharing(mixer: Mixer) -> int:
    """Return how many layers share K and V (CLA); each of them reads them."""
    return mixer.kv_sharing if isinstance(mixer, Attention) else 1


def kv_ranks(deployment: Deployment) -> float:
    """Return the devices that a context is spread over: KV heads by tensor, tokens by sequence."""
    parallel = deployment.parallel
    return parallel.tensor / deployment.kv_replication * parallel.sequence


def _activation_elements(group: LayerGroup, width: int) -> float:
    """Return about 10 d + 4 f elements per token and layer, where nothing is fused."""
    return 10 * width + 4 * _inner_width(group)


def _product_inputs(group: LayerGroup, width: int) -> float:
    """Return about 3 d + f elements per token and layer: both projections', both FFN products'."""
    return 3 * width + _inner_width(group)


def _inner_width(group: LayerGroup) -> float:
    ffn = group.ffn
    return ffn.width if isinstance(ffn, Dense) else ffn.top_k * ffn.width + ffn.shared_width
