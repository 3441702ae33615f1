"""Seconds of attention in a step: decodes, chunks of prompts, verified drafts."""

from functools import cached_property
from math import ceil

import numpy as np

import servetwin.sim.step_times.roofline.operators as operators
from servetwin.sim.catalogue.mixers import Mixer
from servetwin.sim.catalogue.model import LayerGroup
from servetwin.sim.step_times.roofline.batch_pieces import BatchPieces
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.messages import PARTIAL_BYTES, Messages, partial_elements
from servetwin.sim.step_times.step_time import FloatArray


class AttentionCost:
    """Seconds of attention on a deployment; it computes in bf16 whatever the format of weights."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._pieces = BatchPieces(deployment.parallel)
        self._bytes_per_s = deployment.hardware.memory_bytes_per_s
        self._flops_per_s = deployment.hardware.peak("bf16")
        self._messages = Messages(deployment)

    def context_s(self, decodes: float) -> float:
        """Return the seconds of decode attention per token of context, all tokens costing alike."""
        share = self._pieces.share(decodes, False)
        return share * sum(token_s for _, token_s in self._groups_token_s)

    def decodes_s(self, contexts: operators.IntArray) -> FloatArray:
        """Return the seconds of decode attention for each row of contexts, windows included.

        Tokens that are seen are whole numbers, so their sums are exact, and a row does not depend
        on the rows beside it.
        """
        rows, decodes = contexts.shape
        total = np.zeros(rows)
        for place, mixer in enumerate(self.mixers()) if decodes else ():
            seen = operators.visible(mixer, contexts).sum(axis=1)
            splits = self.splits(seen, decodes)
            for split in np.unique(splits).tolist():
                token_s, apart_s = self.decode_line_s(place, decodes, split)
                total += np.where(splits == split, token_s * seen + apart_s, 0.0)
        return total

    def mixers(self) -> list[Mixer]:
        """Return the mixer of each group of layers."""
        return [group.mixer for group in self._deployment.model.layers]

    def split_tokens(self, decodes: int) -> int | None:
        """Return the tokens that ``decodes`` decodes see per split; None where nothing splits."""
        kernels = self._deployment.kernels
        if kernels.occupancy != "split":
            return None
        return decodes * self._deployment.parallel.sequence * kernels.split_tokens

    def splits(self, seen: operators.IntArray, decodes: int) -> operators.IntArray:
        """Return the pieces of each context where ``decodes`` decodes see so many tokens in all."""
        size = self.split_tokens(decodes)
        return np.ones_like(seen) if size is None else np.maximum(1, -(-seen // size))

    def decode_line_s(self, place: int, decodes: int, splits: int) -> tuple[float, float]:
        """Return the seconds of a group of layers: per token that the decodes see, and apart."""
        group, token_s = self._groups_token_s[place]
        share, pieces = self._pieces.share(decodes, False), self._pieces.count(decodes)
        part = decodes / pieces
        busy = self._filled(group.mixer, part, splits)
        apart_s = group.count * pieces * self._reduction_s(group.mixer, part, splits)
        return float(share * token_s / busy), float(share * apart_s)

    @cached_property
    def _groups_token_s(self) -> list[tuple[LayerGroup, float]]:
        return [(g, self._decode_attention_s(g)) for g in self._deployment.model.layers]

    def state_s(self, decodes: float) -> float:
        """Return the seconds that the states of so many decodes take, whatever their contexts."""
        deployment = self._deployment
        states = (operators.decode_state(deployment, g, decodes) for g in deployment.model.layers)
        total = sum(self._seconds(state) for state in states)
        return total * self._pieces.share(decodes, False)

    def chunk_s(self, start: int, rows: int) -> float:
        """Return the seconds of attention of one chunk of a prompt, in all stages."""
        deployment = self._deployment
        total = 0.0
        for group in deployment.model.layers:
            attention = operators.prefill_attention(deployment, group, start, rows)
            computing_s = self._seconds(attention)
            keys = operators.seen_keys(group.mixer, start, rows)
            computing_s = self._with_streamed_kv(computing_s, group, keys)
            ring_s = self._messages.ring_s(group.mixer, start + rows)
            total += max(computing_s, group.count * ring_s)
        return total

    def verification_s(self, start: int, rows: int, sequences: int) -> float:
        """Return the seconds of the drafted rows of one of ``sequences`` decodes, in all stages."""
        total = 0.0
        pieces = self._pieces.count(sequences)
        part = sequences / pieces
        for group in self._deployment.model.layers:
            attention = operators.verification_attention(self._deployment, group, start, rows)
            keys = operators.verified_keys(group.mixer, start, rows)
            seconds = self._slowed(self._seconds(attention))
            seconds = self._with_streamed_kv(seconds, group, keys)
            # as a plain decode's keys are
            splits = self._splits(operators.verified_keys(group.mixer, start, 1))
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
        operator = operators.decode_attention(deployment, group.mixer, 1, group.count)
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
        moved = group.count * operators.read_kv_bytes(self._deployment, group.mixer, tokens)
        streamed_s = moved * (1 - offload.resident_kv) / self._deployment.host_bytes_per_s
        return max(seconds, streamed_s) if offload.prefetch else seconds + streamed_s

    def _seconds(self, operator: operators.Operator) -> float:
        memory_s = operator.moved_bytes / self._bytes_per_s
        efficiency = self._deployment.efficiency
        compute_s = operator.flops / (self._flops_per_s * efficiency.attention)
        return efficiency.seconds(compute_s, memory_s)
