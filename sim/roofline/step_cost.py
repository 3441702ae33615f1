"""Seconds of the parts of a step on a deployment: rows, decode attention, prompt chunks.

The step's time is the sum over its operators, each at its own place of the roofline, because in a
mixed batch attention and products sit on opposite sides of the ridge.
"""

from math import ceil

from sim.roofline.deployment import ACTIVATION_BYTES, Deployment
from sim.roofline.operators import (
    Operator,
    decode_attention,
    head_operator,
    linear_operators,
    prefill_attention,
    visible,
)
from sim.shapes.feed_forward import Experts
from sim.shapes.mixers import Attention, Mixer
from sim.step_time import FloatArray


class StepCost:
    """Seconds of each part; floats of rows are expectations."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self._bytes_per_s = deployment.hardware.memory_bytes_per_s
        self._attention_flops_per_s = deployment.hardware.peak("bf16")
        self._efficiency = deployment.efficiency
        self._layers_s: dict[tuple[float, bool], float] = {}

    def rows_s(self, rows: float, logit_rows: float, has_prefill: bool) -> float:
        """All that depends on the number of rows: products, messages, launches, overhead."""
        stages = self.deployment.parallel.pipeline
        flights = self._flights(logit_rows)
        batches = rows / flights, logit_rows / flights
        device_s = self._linear_s(*batches, has_prefill) + self._messages_s(rows / flights)
        device_s += self._launches_s()
        device_s *= self._rounds(flights, has_prefill) / stages
        device_s += (stages - 1) * self._send_s(rows / flights) if stages > 1 else 0.0
        return self._efficiency.overhead_s + self._with_streamed_weights(device_s)

    def context_s(self, decodes: float) -> float:
        """Decode attention per token of context, where that does not depend on the context."""
        share = self._attention_share(decodes, False)
        total = sum(
            self._decode_attention_s(group.mixer, _visible_share(group.mixer), group.count)
            for group in self.deployment.model.layers
        )
        return share * total

    def attention_s(self, contexts: FloatArray) -> float:
        """Decode attention of these contexts, windows and occupancy included."""
        decodes = len(contexts)
        if not decodes:
            return 0.0
        total, mean = 0.0, float(contexts.mean())
        for group in self.deployment.model.layers:
            mixer = group.mixer
            seen = visible(mixer, contexts) if isinstance(mixer, Attention) else contexts
            plain_s = self._decode_attention_s(mixer, float(seen.sum()), group.count)
            total += plain_s / self.occupancy(mixer, decodes, mean)
            total += group.count * self._reduction_s(mixer, decodes, mean)
        return total * self._attention_share(decodes, False)

    def chunk_s(self, start: int, rows: int) -> float:
        """Attention of one chunk of a prompt."""
        deployment = self.deployment
        total = 0.0
        for group in deployment.model.layers:
            attention = prefill_attention(deployment, group, start, rows)
            computing_s = self._seconds(attention, self._attention_flops_per_s)
            total += max(computing_s, group.count * self._ring_s(group.mixer, rows))
        return total * self._attention_share(1, True)

    def occupancy(self, mixer: Mixer, decodes: float, context_tokens: float) -> float:
        """Share of the device that decode attention keeps busy: blocks / SMs, at most 1."""
        kernels, ranks = self.deployment.kernels, self.deployment.parallel.tensor
        if kernels.occupancy == "full" or not decodes:
            return 1.0
        splits = self._splits(context_tokens)
        blocks = decodes * ceil(mixer.kv_groups() / ranks) * splits
        return min(1.0, blocks / self.deployment.hardware.compute_units)

    def _splits(self, context_tokens: float) -> int:
        kernels = self.deployment.kernels
        if kernels.occupancy != "split":
            return 1
        return max(1, ceil(context_tokens / kernels.split_tokens))

    def _reduction_s(self, mixer: Mixer, decodes: int, context_tokens: float) -> float:
        """Of a split attention: partial results, 4 bytes each, out and in again; one launch."""
        splits = self._splits(context_tokens)
        if splits == 1 or not isinstance(mixer, Attention):
            return 0.0
        heads = mixer.heads / self.deployment.parallel.tensor
        moved = 2 * splits * decodes * heads * (mixer.head_dim + 2) * 4
        return moved / self._bytes_per_s + self.deployment.hardware.kernel_launch_s

    def _linear_s(self, rows: float, logit_rows: float, has_prefill: bool) -> float:
        form = self.deployment.prefill if has_prefill else self.deployment.decode
        flops_per_s = self.deployment.hardware.peak(form.compute) * form.compute_share
        key = rows, has_prefill
        layers_s = self._layers_s.get(key)
        if layers_s is None:
            operators = linear_operators(self.deployment, rows, has_prefill)
            layers_s = sum(self._seconds(operator, flops_per_s) for operator in operators)
            self._layers_s[key] = layers_s
        head = head_operator(self.deployment, logit_rows, has_prefill)
        return layers_s + self._seconds(head, flops_per_s)

    def _decode_attention_s(self, mixer: Mixer, context_tokens: float, layers: int) -> float:
        deployment = self.deployment
        operator = decode_attention(deployment, mixer, context_tokens, layers)
        offload, kernels = deployment.offload, deployment.kernels
        seconds = self._seconds(operator, self._attention_flops_per_s) * kernels.attention_slowdown
        if kernels.synchronised:
            seconds /= 1 - kernels.synchronisation_share
        if deployment.early_exit:
            seconds *= deployment.early_exit.mean_depth()
        if offload.resident_kv == 1:
            return seconds
        streamed_s = operator.moved_bytes * (1 - offload.resident_kv) / self._host_bytes_per_s()
        return max(seconds, streamed_s) if offload.prefetch else seconds + streamed_s

    def _seconds(self, operator: Operator, flops_per_s: float) -> float:
        return self._efficiency.seconds(
            operator.flops / flops_per_s, operator.moved_bytes / self._bytes_per_s
        )

    def _messages_s(self, rows: float) -> float:
        """Two all-reduces a layer (tensor), two all-to-alls a layer of experts (expert)."""
        deployment, link = self.deployment, self.deployment.link
        parallel, width = deployment.parallel, deployment.model.width
        if parallel.tensor == parallel.expert == parallel.sequence == 1:
            return 0.0
        size = rows * width * ACTIVATION_BYTES
        total = 2 * deployment.model.layer_count * link.all_reduce_s(size, parallel.tensor)
        for group in deployment.model.layers:
            if isinstance(group.ffn, Experts):
                routed = size * group.ffn.top_k / parallel.expert
                total += 2 * group.count * link.all_to_all_s(routed, parallel.expert)
            if isinstance(group.mixer, Attention):
                reduced = rows * group.mixer.heads * (group.mixer.head_dim + 2) * ACTIVATION_BYTES
                total += group.count * link.all_reduce_s(reduced, parallel.sequence)
        return total

    def _ring_s(self, mixer: Mixer, rows: int) -> float:
        """Keys and values of every rank pass every other one (ring attention, Liu 2023)."""
        ranks = self.deployment.parallel.sequence
        if ranks == 1:
            return 0.0
        size = mixer.kv_elements() * rows / ranks * self.deployment.kv_element_bytes
        return (ranks - 1) * self.deployment.link.send_s(size)

    def _send_s(self, rows: float) -> float:
        return self.deployment.link.send_s(rows * self.deployment.model.width * ACTIVATION_BYTES)

    def _launches_s(self) -> float:
        kernels = self.deployment.kernels
        per_layer = kernels.launches_per_layer * (1 if kernels.fused else 2)
        launches = self.deployment.model.layer_count * per_layer
        return launches * self.deployment.hardware.kernel_launch_s

    def _with_streamed_weights(self, device_s: float) -> float:
        """Weights that do not stay on the device come over the link, beside the computing or not.

        Attention is not hidden behind the stream.
        """
        offload = self.deployment.offload
        if offload.resident_weights == 1:
            return device_s
        streamed = self.deployment.weight_bytes() * (1 - offload.resident_weights)
        streamed_s = streamed / self._host_bytes_per_s()
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

    def _attention_share(self, sequences: float, has_prefill: bool) -> float:
        stages, flights = self.deployment.parallel.pipeline, self._flights(sequences)
        return self._rounds(flights, has_prefill) / (flights * stages)


def _visible_share(mixer: Mixer) -> float:
    return 1 / mixer.dilation if isinstance(mixer, Attention) else 1.0
