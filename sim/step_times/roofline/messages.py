"""Seconds that the devices of a deployment talk to each other: all-reduces, all-to-alls, rings."""

from servetwin.sim.catalogue.feed_forward import Experts, FeedForward
from servetwin.sim.catalogue.mixers import Attention, Mixer, Recurrence
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.formats import ACTIVATION_BYTES
from servetwin.sim.step_times.roofline.operators import read_kv_bytes

PARTIAL_BYTES = 4
"""Of an element of a partial attention result."""


class Messages:
    """Seconds of each kind of message; rows may be expected values."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment

    def layers_s(self, rows: float, logit_rows: float, has_prefill: bool) -> float:
        """Return the seconds of messages within layers; rows that need logits count as decodes."""
        parallel = self._deployment.parallel
        if parallel.tensor == parallel.expert == parallel.sequence == 1:
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
        """Return two all-reduces a layer (tensor), or two all-to-alls around distant experts."""
        parallel, link = self._deployment.parallel, self._deployment.link
        reduced_s = link.all_reduce_s(size_bytes, parallel.tensor)
        if isinstance(ffn, Experts) and parallel.expert > 1:
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
