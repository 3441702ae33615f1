"""Seconds of the parts of a step on a deployment: rows, decode attention, prompt chunks.

The step's time is the sum over its operators, each at its own place of the roofline, because in a
mixed batch attention and products sit on opposite sides of the ridge.
"""

from functools import cached_property
from math import ceil

import numpy as np

from sim.shapes.mixers import Mixer
from sim.shapes.model import LayerGroup
from sim.step_times.roofline.deployment import Deployment
from sim.step_times.roofline.formats import Format
from sim.step_times.roofline.messages import PARTIAL_BYTES, Messages, partial_elements
from sim.step_times.roofline.operators import (
    IntArray,
    Operator,
    decode_attention,
    decode_state,
    head_operator,
    linear_operators,
    prefill_attention,
    read_kv_bytes,
    seen_keys,
    verification_attention,
    verified_keys,
    visible,
)
from sim.step_times.step_time import FloatArray

Tokens = float | FloatArray
"""One value, or one for each row of contexts."""


class StepCost:
    """Seconds of each part; floats of rows are expectations."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self._bytes_per_s = deployment.hardware.memory_bytes_per_s
        self._attention_flops_per_s = deployment.hardware.peak("bf16")
        self._efficiency = deployment.efficiency
        self._messages = Messages(deployment)
        self._layers_s: dict[tuple[float, bool, float], float] = {}

    def rows_s(self, rows: float, logit_rows: float, has_prefill: bool) -> float:
        """All that depends on the number of rows: products, messages, launches, overhead."""
        parallel = self.deployment.parallel
        flights, groups = self._flights(logit_rows), self._groups(logit_rows)
        part = rows / flights / groups, logit_rows / flights / groups
        device_s = self._linear_s(*part, has_prefill, groups) + self._messages.layers_s(
            *part, has_prefill
        )
        device_s += self._launches_s()
        device_s *= self._rounds(flights, has_prefill) / parallel.pipeline
        if parallel.pipeline > 1:
            device_s += (parallel.pipeline - 1) * self._messages.hop_s(part[0], has_prefill)
        return self._efficiency.overhead_s + self._with_streamed_weights(device_s)

    def share(self, sequences: float, has_prefill: bool) -> float:
        """Of the attention to all sequences, how much lies on a step's path.

        One over the stages that are busy (in steady state; a prompt has GPipe's bubble) and over
        the groups that have a sequence.
        """
        stages, flights = self.deployment.parallel.pipeline, self._flights(sequences)
        rounds = self._rounds(flights, has_prefill)
        return rounds / (flights * stages) / self._groups(sequences)

    def parts(self, sequences: float) -> float:
        """Pieces that a batch is cut into: micro-batches in flight, in each group of devices."""
        return self._flights(sequences) * self._groups(sequences)

    def context_s(self, decodes: float) -> float:
        """Decode attention per token of context, where that does not depend on the context."""
        share = self.share(decodes, False)
        return share * sum(token_s for _, token_s in self._groups_token_s)

    def attention_s(self, contexts: IntArray) -> FloatArray:
        """Decode attention of each row of contexts, windows and occupancy included.

        The time of a group of layers is proportional to the tokens that it sees. They are whole
        numbers, so their sums are exact, and a row does not depend on those beside it.
        """
        rows, decodes = contexts.shape
        total = np.zeros(rows)
        if not decodes:
            return total
        parts = self.parts(decodes)
        fills = self.deployment.kernels.occupancy == "full"
        for group, token_s in self._groups_token_s:
            seen = visible(group.mixer, contexts).sum(axis=1)
            if fills:
                total += token_s * seen
                continue
            part, mean = decodes / parts, seen / decodes
            total += token_s * seen / self.occupancy(group.mixer, part, mean)
            total += group.count * parts * self._reduction_s(group.mixer, part, mean)
        return total * self.share(decodes, False)

    @cached_property
    def _groups_token_s(self) -> list[tuple[LayerGroup, float]]:
        return [(g, self._decode_attention_s(g)) for g in self.deployment.model.layers]

    def state_s(self, decodes: float) -> float:
        """What the states of so many decodes take, whatever their contexts."""
        states = (decode_state(self.deployment, g, decodes) for g in self.deployment.model.layers)
        total = sum(self._seconds(state, self._attention_flops_per_s) for state in states)
        return total * self.share(decodes, False)

    def chunk_s(self, start: int, rows: int) -> float:
        """Attention of one chunk of a prompt, in all stages."""
        deployment = self.deployment
        total = 0.0
        for group in deployment.model.layers:
            attention = prefill_attention(deployment, group, start, rows)
            computing_s = self._seconds(attention, self._attention_flops_per_s)
            keys = seen_keys(group.mixer, start, rows)
            computing_s = self._with_streamed_kv(computing_s, group, keys)
            total += max(
                computing_s, group.count * self._messages.ring_s(group.mixer, start + rows)
            )
        return total

    def verification_s(self, start: int, rows: int, sequences: int) -> float:
        """Attention of the drafted rows of one of ``sequences`` decodes, in all stages."""
        total = 0.0
        parts = self.parts(sequences)
        part = sequences / parts
        for group in self.deployment.model.layers:
            attention = verification_attention(self.deployment, group, start, rows)
            keys = verified_keys(group.mixer, start, rows)
            seconds = self._slowed(self._seconds(attention, self._attention_flops_per_s))
            seconds = self._with_streamed_kv(seconds, group, keys)
            split = np.array(verified_keys(group.mixer, start, 1))  # as a plain decode's keys are
            total += float(seconds / self.occupancy(group.mixer, part, split))
            reducing_s = self._reduction_s(group.mixer, part * rows, split)
            total += float(group.count / part * reducing_s)
        return total

    def occupancy(self, mixer: Mixer, decodes: float, context_tokens: Tokens) -> Tokens:
        """Share of the device that decode attention keeps busy: blocks / SMs, at most 1."""
        kernels, ranks = self.deployment.kernels, self.deployment.parallel.tensor
        if kernels.occupancy == "full" or not decodes:
            return 1.0
        splits = self._splits(context_tokens)
        blocks = decodes * ceil(mixer.kv_groups() / ranks) * splits
        return np.minimum(1.0, blocks / self.deployment.hardware.compute_units)

    def _splits(self, context_tokens: Tokens) -> Tokens:
        kernels = self.deployment.kernels
        if kernels.occupancy != "split":
            return 1.0
        on_rank = context_tokens / self.deployment.parallel.sequence
        return np.maximum(1.0, np.ceil(on_rank / kernels.split_tokens))

    def _reduction_s(self, mixer: Mixer, decodes: float, context_tokens: FloatArray) -> Tokens:
        """Of a split attention: partial results out and in again, and one launch."""
        elements = partial_elements(mixer)
        if not elements or not self.deployment.kernels.synchronised:
            return 0.0
        splits = self._splits(context_tokens)
        moved = 2 * decodes * elements * PARTIAL_BYTES / self.deployment.parallel.tensor
        piece_s = self._efficiency.seconds(0.0, moved / self._bytes_per_s)
        reducing_s = splits * piece_s + self.deployment.hardware.kernel_launch_s
        return np.where(np.greater(splits, 1), reducing_s, 0.0)

    def _linear_s(self, rows: float, logit_rows: float, has_prefill: bool, groups: float) -> float:
        form = self.deployment.prefill if has_prefill else self.deployment.decode
        key = rows, has_prefill, groups
        layers_s = self._layers_s.get(key)
        if layers_s is None:
            operators = linear_operators(self.deployment, rows, has_prefill, groups)
            layers_s = sum(self.weighted_s(operator, form) for operator in operators)
            self._layers_s[key] = layers_s
        head = head_operator(self.deployment, logit_rows, has_prefill)
        return layers_s + self.weighted_s(head, form)

    def weighted_s(self, operator: Operator, form: Format) -> float:
        """A product with weights, or what only moves numbers: that is no matter of the format."""
        flops_per_s = self.deployment.hardware.peak(form.compute) * form.compute_share
        bytes_per_s = self._bytes_per_s * (form.memory_share if operator.flops else 1.0)
        return self._efficiency.seconds(
            operator.flops / flops_per_s, operator.moved_bytes / bytes_per_s
        )

    def _decode_attention_s(self, group: LayerGroup) -> float:
        """One token of context, seen by every layer of a group."""
        deployment = self.deployment
        operator = decode_attention(deployment, group.mixer, 1, group.count)
        seconds = self._slowed(self._seconds(operator, self._attention_flops_per_s))
        if deployment.early_exit:
            seconds *= deployment.early_exit.mean_depth()
        return self._with_streamed_kv(seconds, group, 1)

    def _slowed(self, seconds: float) -> float:
        """Decode attention with what reading by a table and updating a maximum cost."""
        kernels = self.deployment.kernels
        slowed_s = seconds * kernels.attention_slowdown
        if kernels.synchronised:
            slowed_s /= 1 - kernels.synchronisation_share
        return slowed_s

    def _with_streamed_kv(self, seconds: float, group: LayerGroup, tokens: int) -> float:
        """Attention beside the keys and values that come from the host, or go there."""
        offload = self.deployment.offload
        if offload.resident_kv == 1:
            return seconds
        moved = group.count * read_kv_bytes(self.deployment, group.mixer, tokens)
        streamed_s = moved * (1 - offload.resident_kv) / self._host_bytes_per_s()
        return max(seconds, streamed_s) if offload.prefetch else seconds + streamed_s

    def _seconds(self, operator: Operator, flops_per_s: float) -> float:
        return self._efficiency.seconds(
            operator.flops / flops_per_s, operator.moved_bytes / self._bytes_per_s
        )

    def _launches_s(self) -> float:
        kernels = self.deployment.kernels
        per_layer = kernels.launches_per_layer * (1 if kernels.fused else 2)
        launches = self.deployment.model.layer_count * per_layer
        return launches * self.deployment.hardware.kernel_launch_s

    def _with_streamed_weights(self, device_s: float) -> float:
        """Weights that do not stay on the device come over the link, beside the computing or not.

        Attention is not hidden behind the stream.
        """
        offload, parallel = self.deployment.offload, self.deployment.parallel
        if offload.resident_weights == 1:
            return device_s
        streamed = self.deployment.weight_bytes() * (1 - offload.resident_weights)
        links = parallel.devices / parallel.sequence  # sequence ranks all need all weights
        streamed_s = streamed / links / self._host_bytes_per_s()
        return max(device_s, streamed_s) if offload.prefetch else device_s + streamed_s

    def _host_bytes_per_s(self) -> float:
        given = self.deployment.offload.bytes_per_s
        return given or self.deployment.hardware.host_link_bytes_per_s

    def _flights(self, sequences: float) -> float:
        """Micro-batches in flight: not more than there are sequences."""
        parallel = self.deployment.parallel
        return max(1.0, min(parallel.micro_batches or parallel.pipeline, sequences))

    def _rounds(self, flights: float, has_prefill: bool) -> float:
        """Stage times until all micro-batches are through: in steady state max(p, m), with a
        prompt m + p - 1 (GPipe's bubble)."""
        stages = self.deployment.parallel.pipeline
        return flights + stages - 1 if has_prefill else max(float(stages), flights)

    def _groups(self, sequences: float) -> float:
        """Groups that have a sequence of each micro-batch."""
        return self.deployment.parallel.spread(sequences / self._flights(sequences))
