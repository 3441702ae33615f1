"""Seconds of a step on a deployment: rows, and attention beside them.

The time of a step is the sum over its operators, each at its own place of the roofline, because in
a mixed batch attention and products sit on opposite sides of the ridge.
"""

from functools import cached_property
from math import ceil

import numpy as np

import servetwin.sim.step_times.roofline.operators as counts
from servetwin.sim.catalogue.layers import Attention, Experts, FeedForward, Mixer, Recurrence
from servetwin.sim.catalogue.model import LayerGroup
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.efficiency import expert_share
from servetwin.sim.step_times.roofline.formats import ACTIVATION_BYTES
from servetwin.sim.step_times.roofline.operators import (
    Operator,
    head_operator,
    linear_operators,
    read_kv_bytes,
)
from servetwin.sim.step_times.step_time import Remembered


class AttentionCost:
    """Seconds of attention on a deployment; it computes in bf16 whatever the format of weights."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._parallel = deployment.parallel
        self._bytes_per_s = deployment.hardware.memory_bytes_per_s
        self._flops_per_s = deployment.hardware.peak("bf16")
        self._messages = Messages(deployment)

    def context_s(self, decodes: float) -> float:
        """Return the seconds of decode attention per token of context, all tokens costing alike."""
        share = self._parallel.path_share(decodes, False)
        return share * sum(token_s for _, token_s in self._groups_token_s)

    def split_tokens(self, decodes: int) -> int | None:
        """Return the tokens that ``decodes`` decodes see per split; None where nothing splits."""
        kernels = self._deployment.kernels
        if kernels.occupancy != "split":
            return None
        return decodes * self._deployment.parallel.sequence * kernels.split_tokens

    def splits(self, seen: counts.IntArray, decodes: int) -> counts.IntArray:
        """Return the pieces of each context where ``decodes`` see ``seen`` tokens in all."""
        size = self.split_tokens(decodes)
        return np.ones_like(seen) if size is None else np.maximum(1, -(-seen // size))

    def decode_line_s(self, place: int, decodes: int, splits: int) -> tuple[float, float]:
        """Return the seconds of a group of layers: per token that the decodes see, and apart."""
        group, token_s = self._groups_token_s[place]
        share, pieces = self._parallel.path_share(decodes, False), self._parallel.pieces(decodes)
        part = decodes / pieces
        busy = self._filled(group.mixer, part, splits)
        apart_s = group.count * pieces * self._reduction_s(group.mixer, part, splits)
        return float(share * token_s / busy), float(share * apart_s)

    @cached_property
    def _groups_token_s(self) -> list[tuple[LayerGroup, float]]:
        return [(g, self._decode_attention_s(g)) for g in self._deployment.model.layers]

    def state_s(self, decodes: float) -> float:
        """Return the seconds that the states of ``decodes`` take, whatever their contexts."""
        deployment = self._deployment
        states = (counts.decode_state(deployment, g, decodes) for g in deployment.model.layers)
        total = sum(self._seconds(state) for state in states)
        return total * self._parallel.path_share(decodes, False)

    def chunk_s(self, start: int, rows: int) -> float:
        """Return the seconds of attention of one chunk of a prompt, in all stages."""
        deployment = self._deployment
        total = deployment.efficiency.chunk_s
        for group in deployment.model.layers:
            attention = counts.prefill_attention(deployment, group, start, rows)
            computing_s = self._seconds(attention)
            keys = counts.seen_keys(group.mixer, start, rows)
            computing_s = self._with_streamed_kv(computing_s, group, keys)
            ring_s = self._messages.ring_s(group.mixer, start + rows)
            total += max(computing_s, group.count * ring_s)
        return total

    def verification_s(self, start: int, rows: int, sequences: int) -> float:
        """Return the seconds of the drafted rows of one of ``sequences`` decodes, in all stages."""
        total = 0.0
        pieces = self._parallel.pieces(sequences)
        part = sequences / pieces
        for group in self._deployment.model.layers:
            attention = counts.verification_attention(self._deployment, group, start, rows)
            keys = counts.verified_keys(group.mixer, start, rows)
            seconds = self._slowed(self._seconds(attention))
            seconds = self._with_streamed_kv(seconds, group, keys)
            # as a plain decode's keys are
            splits = self._splits(counts.verified_keys(group.mixer, start, 1))
            total += float(seconds / self._filled(group.mixer, part, splits))
            reducing_s = self._reduction_s(group.mixer, part * rows, splits)
            total += float(group.count / part * reducing_s)
        return total

    def occupancy(self, mixer: Mixer, decodes: float, context_tokens: float) -> float:
        """Return the share of the device that decode attention fills: blocks / SMs, at most 1."""
        return self._filled(mixer, decodes, self._splits(context_tokens))

    def _filled(self, mixer: Mixer, decodes: float, splits: int) -> float:
        kernels, ranks = self._deployment.kernels, self._deployment.parallel.tensor
        if kernels.occupancy == "full" or not decodes:
            return 1.0
        blocks = decodes * ceil(mixer.kv_groups() / ranks) * splits
        return min(1.0, blocks / self._deployment.hardware.compute_units)

    def _splits(self, context_tokens: float) -> int:
        size = self.split_tokens(1)
        return 1 if size is None else max(1, ceil(context_tokens / size))

    def _reduction_s(self, mixer: Mixer, decodes: float, splits: int) -> float:
        """Return the seconds to reduce a split: partial results out and in, one launch."""
        elements = partial_elements(mixer)
        if splits == 1 or not elements or not self._deployment.kernels.synchronised:
            return 0.0
        moved = 2 * decodes * elements * PARTIAL_BYTES / self._deployment.parallel.tensor
        piece_s = self._deployment.efficiency.seconds(0.0, moved / self._bytes_per_s)
        return splits * piece_s + self._deployment.hardware.kernel_launch_s

    def _decode_attention_s(self, group: LayerGroup) -> float:
        """Return the seconds of one token of context, seen by every layer of a group."""
        deployment = self._deployment
        operator = counts.decode_attention(deployment, group.mixer, 1, group.count)
        seconds = self._slowed(self._seconds(operator))
        if deployment.early_exit:
            seconds *= deployment.early_exit.mean_depth()
        return self._with_streamed_kv(seconds, group, 1)

    def _slowed(self, seconds: float) -> float:
        """Return decode attention with the cost of reading by a table and updating a maximum."""
        kernels = self._deployment.kernels
        slowed_s = seconds * kernels.attention_slowdown
        if kernels.synchronised:
            slowed_s /= 1 - kernels.synchronisation_share
        return slowed_s

    def _with_streamed_kv(self, seconds: float, group: LayerGroup, tokens: int) -> float:
        """Return attention beside the keys and values that come from the host, or go there."""
        offload = self._deployment.offload
        if offload.resident_kv == 1:
            return seconds
        moved = group.count * counts.read_kv_bytes(self._deployment, group.mixer, tokens)
        streamed_s = moved * (1 - offload.resident_kv) / self._deployment.host_bytes_per_s
        return max(seconds, streamed_s) if offload.prefetch else seconds + streamed_s

    def _seconds(self, operator: counts.Operator) -> float:
        memory_s = operator.moved_bytes / self._bytes_per_s
        efficiency = self._deployment.efficiency
        compute_s = operator.flops / (self._flops_per_s * efficiency.attention)
        return efficiency.seconds(compute_s, memory_s)


# The bytes of an element of a partial attention result.
PARTIAL_BYTES = 4


class Messages:
    """Seconds of each kind of message; rows may be expected values."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment

    def layers_s(self, rows: float, logit_rows: float, has_prefill: bool) -> float:
        """Return the seconds of messages within layers; rows that need logits count as decodes."""
        parallel = self._deployment.parallel
        if parallel.stage_devices == 1:
            return 0.0
        size = self._activation_bytes(rows, has_prefill)
        return self._deployment.model.total(
            lambda g: self._exchange_s(g.ffn, size) + self.partials_s(g.mixer, logit_rows)
        )

    def partials_s(self, mixer: Mixer, decodes: float) -> float:
        """Return the seconds to sum partial results of decodes whose context lies on many ranks."""
        parallel = self._deployment.parallel
        size = decodes * partial_elements(mixer) * PARTIAL_BYTES / parallel.tensor
        return self._deployment.link.all_reduce_s(size, parallel.sequence) if size else 0.0

    def ring_s(self, mixer: Mixer, tokens: int) -> float:
        """Return the seconds of a ring of keys and values (ring attention, Liu 2023)."""
        ranks = self._deployment.parallel.sequence
        if ranks == 1 or not mixer.kv_elements():
            return 0.0
        size = read_kv_bytes(self._deployment, mixer, tokens)
        return (ranks - 1) * self._deployment.link.send_s(size)

    def hop_s(self, rows: float, has_prefill: bool) -> float:
        """Return the seconds of one message from stage to stage."""
        return self._deployment.link.send_s(self._activation_bytes(rows, has_prefill))

    def _exchange_s(self, ffn: FeedForward, size_bytes: float) -> float:
        """Return two all-reduces a layer (tensor), or two all-to-alls around distant experts.

        Experts that several groups share in slices need the rows of all groups: a gathering and a
        scattered sum, which take as long as an all-reduce of all rows.
        """
        parallel, link = self._deployment.parallel, self._deployment.link
        reduced_s = link.all_reduce_s(size_bytes, parallel.tensor)
        is_shared = isinstance(ffn, Experts) and parallel.groups > 1
        if is_shared and parallel.expert == 1:
            rows_bytes = size_bytes * parallel.groups
            return reduced_s + link.all_reduce_s(rows_bytes, parallel.expert_ranks)
        if isinstance(ffn, Experts) and parallel.expert > 1 and is_shared:
            routed = size_bytes * ffn.top_k / parallel.tensor
            return reduced_s + 2 * link.all_to_all_s(routed, parallel.expert)
        has_ffn = ffn.params(self._deployment.model.width) > 0
        return (1 + has_ffn) * reduced_s

    def _activation_bytes(self, rows: float, has_prefill: bool) -> float:
        """Return the bytes between two layers on a device: all rows, or its piece of a prompt."""
        here = rows / self._deployment.parallel.sequence if has_prefill else rows
        return here * self._deployment.model.width * ACTIVATION_BYTES


def partial_elements(mixer: Mixer) -> float:
    """Return the elements of a partial result: a sum per value, a maximum and a sum per head."""
    if isinstance(mixer, Recurrence):
        return 0.0
    values = mixer.head_dim if isinstance(mixer, Attention) else mixer.latent_dim
    return mixer.heads * (values + 2)


class StepCost:
    """Seconds of the rows of a step, with ``attention`` beside.

    Floats of rows are expectations.
    """

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.attention = AttentionCost(deployment)
        self._messages = Messages(deployment)
        self._layers_s = Remembered(self._of_layers)
        self._heads_s = Remembered(self._of_head)
        self._launching_s = self._launches_s()

    def rows_s(self, rows: float, logit_rows: float, has_prefill: bool) -> float:
        """Return the seconds that depend on rows alone: products, messages, launches, overhead."""
        device_s = self._device_s(rows, logit_rows, has_prefill)
        achieved = self.deployment.efficiency
        host_s = achieved.overhead_s + achieved.sequence_s * logit_rows
        return host_s + self._with_streamed_weights(device_s)

    def stream_slack_s(self, rows: float, logit_rows: float, has_prefill: bool) -> float:
        """Return the seconds that the device waits for its weights, free for other computing."""
        if not self.deployment.offload.prefetch:
            return 0.0
        return max(0.0, self._streamed_s - self._device_s(rows, logit_rows, has_prefill))

    def _device_s(self, rows: float, logit_rows: float, has_prefill: bool) -> float:
        parallel = self.deployment.parallel
        micro_batches, groups = parallel.in_flight(logit_rows), parallel.busy_groups(logit_rows)
        rows, logit_rows = rows / micro_batches / groups, logit_rows / micro_batches / groups
        device_s = self._piece_s(rows, logit_rows, has_prefill, groups)
        device_s *= parallel.stage_times(micro_batches, has_prefill) / parallel.pipeline
        if parallel.pipeline > 1:
            device_s += (parallel.pipeline - 1) * self._messages.hop_s(rows, has_prefill)
        return device_s

    def _piece_s(self, rows: float, logit_rows: float, has_prefill: bool, groups: float) -> float:
        device_s = self._layers_s[rows, has_prefill, groups]
        device_s += self._heads_s[logit_rows, has_prefill]
        device_s += self._messages.layers_s(rows, logit_rows, has_prefill)
        return device_s + self._launching_s

    def rank_rows_s(self, rows: int, logit_rows: int, has_prefill: bool, all_rows: int) -> float:
        """Return ``rows_s`` of one of the ranks whose experts take ``all_rows``."""
        device_s = self._piece_s(rows, logit_rows, has_prefill, all_rows / rows)
        return self.deployment.efficiency.overhead_s + self._with_streamed_weights(device_s)

    def weighted_s(self, operator: Operator, has_prefill: bool) -> float:
        """Return the seconds of a product with weights, or of a mere transfer.

        Only products read their bytes at the bandwidth share of the format.
        """
        form = self.deployment.form(has_prefill, operator.part)
        hardware, achieved = self.deployment.hardware, self.deployment.efficiency
        reached = form.compute_share
        if operator.name == "experts" and achieved.experts is None:
            reached = expert_share(form.name, hardware.name, operator.width) / achieved.compute
        elif operator.name == "experts":
            reached *= achieved.experts or 1.0
        share = form.memory_share if operator.flops else 1.0
        memory_s = operator.moved_bytes / (hardware.memory_bytes_per_s * share)
        compute_s = operator.flops / (hardware.peak(form.compute) * reached)
        return achieved.seconds(compute_s, memory_s)

    def _of_head(self, piece: tuple[float, bool]) -> float:
        """Return the seconds of the head, by its rows and whether prompts are among them."""
        return self.weighted_s(head_operator(self.deployment, *piece), piece[1])

    def _of_layers(self, piece: tuple[float, bool, float]) -> float:
        """Return the seconds of the layers, by rows, whether prompts are among them, and groups."""
        operators = linear_operators(self.deployment, *piece)
        return sum(self.weighted_s(operator, piece[1]) for operator in operators)

    def _launches_s(self) -> float:
        kernels = self.deployment.kernels
        per_layer = kernels.launches_per_layer * (1 if kernels.fused else 2)
        if self.deployment.adapters:
            per_layer += self.deployment.adapters.launches_per_layer
        launches = self.deployment.model.layer_count * per_layer
        return launches * self.deployment.hardware.kernel_launch_s

    def _with_streamed_weights(self, device_s: float) -> float:
        """Return the seconds with the weights that come over the host link, in parallel or not.

        Attention is not hidden behind the stream.
        """
        streamed_s = self._streamed_s
        prefetch = self.deployment.offload.prefetch
        return max(device_s, streamed_s) if prefetch else device_s + streamed_s

    @cached_property
    def _streamed_s(self) -> float:
        offload, parallel = self.deployment.offload, self.deployment.parallel
        streamed = self.deployment.target_weight_bytes() * (1 - offload.resident_weights)
        links = parallel.devices / parallel.sequence  # sequence ranks all need all weights
        return streamed / links / self.deployment.host_bytes_per_s
