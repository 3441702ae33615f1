"""Techniques of memory: the KV cache, weights and keys on the host, low-rank keys and values."""

from typing import Annotated, Literal

from pydantic import Field

from servetwin.sim.catalogue.entry import Count, Positive, Share
from servetwin.sim.catalogue.layers import Attention, Mixer
from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.techniques.attention import AttentionChange
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import LONG_PROMPTS, Technique


class KVCache(Technique):
    """Keeps keys and values; off, every token computes its whole context anew."""

    def apply(self, setup: Setup) -> Setup:
        """Keep keys and values."""
        return setup.with_deployment(kv_cache=True)

    def off(self, setup: Setup) -> Setup:
        """Keep nothing: every pass is a prompt as long as the context."""
        return setup.with_deployment(kv_cache=False)


class Offloading(Technique):
    """A technique that keeps something in host memory and streams it to the device in every step.

    The stream has ``gb_per_s`` (10^9 bytes; None: those of the device's host link) and overlaps
    with computing where ``prefetch`` is on.
    """

    gb_per_s: Positive | None = None
    prefetch: bool = True

    def _streamed(self, setup: Setup, **resident: float) -> Setup:
        """Return ``setup`` with ``resident`` shares on the device, the others streamed to it."""
        link_bytes_per_s = setup.deployment.offload.bytes_per_s
        bytes_per_s = link_bytes_per_s if self.gb_per_s is None else self.gb_per_s * 1e9
        return setup.with_offload(**resident, bytes_per_s=bytes_per_s, prefetch=self.prefetch)


class WeightOffload(Offloading):
    """``resident_share`` of the weights, or ``resident_gb`` of them, stay on the device.

    Every step streams all the others, experts without a token included.
    """

    resident_share: Share = 0.0
    resident_gb: Annotated[float | None, Field(ge=0)] = None

    def apply(self, setup: Setup) -> Setup:
        """Return the setup with the other weights on the host."""
        share = self.resident_share
        if self.resident_gb is not None:
            share = min(1.0, self.resident_gb * 1e9 / setup.deployment.target_weight_bytes())
        return self._streamed(setup, resident_weights=share)


class KVOffload(Offloading):
    """``host_share`` of the keys and values of every sequence lie on the host.

    The host has room enough. Attention streams them in, with ``prefetch`` while it reads the
    others.
    """

    host_share: Annotated[float, Field(ge=0, lt=1)] = 0.5

    def apply(self, setup: Setup) -> Setup:
        """Return the setup with that share of the keys and values on the host."""
        return self._streamed(setup, resident_kv=1 - self.host_share)


class LowRankKV(AttentionChange):
    """The l x d matrices K and V of a sequence as l x r times r x d, with d = k e and rank r.

    The prompt is compressed when it has been computed. The small factor is a state of r d elements,
    so a short sequence takes more memory than before.
    """

    rank: Count = 256

    def change(self, attention: Attention, model: ModelShape) -> Mixer:
        """Return attention with factors of this rank; raise where it saves at no length."""
        _require_saving(self, self.rank, attention)
        return super().change(attention, model)


class TurnCompression(AttentionChange):
    """The turns of a conversation that have ended are compressed, the one under way is whole.

    A request is one turn: the last ``turn_tokens`` T of its context are those of the turn itself,
    all before them are earlier ones. ``method``: ``low-rank`` keeps these as factors of ``rank`` r,
    ``drop`` the ``kept_tokens`` with the most attention. A prompt is attended to in full.
    """

    experiment = LONG_PROMPTS

    method: Literal["low-rank", "drop"] = "low-rank"
    rank: Count = 256
    kept_tokens: Count = 512
    turn_tokens: Count = 512

    def change(self, attention: Attention, model: ModelShape) -> Mixer:
        """Return attention with compressed turns; raise where a rank saves at no length."""
        if self.method == "drop":
            budget = {"budget_tokens": self.kept_tokens + self.turn_tokens}
            return attention.model_copy(update=budget)
        _require_saving(self, self.rank, attention)
        factors = {"rank": self.rank, "whole_tokens": self.turn_tokens}
        return attention.model_copy(update=factors)


def _require_saving(technique: Technique, rank: int, attention: Attention) -> None:
    width = attention.kv_heads * attention.head_dim
    if rank >= width:
        raise technique.refusal(
            f"rank {rank} saves nothing where K and V are {width} wide; it must be less than "
            f"{width}"
        )
