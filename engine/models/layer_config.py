"""Parts of a model's shape: latent attention, experts, and stretched rotary positions."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from servetwin.workloads.errors import EngineError


@dataclass(frozen=True, slots=True)
class LatentConfig:
    """Keys and values of all heads are products of one latent per token (arXiv 2405.04434).

    Of each query head, the first ``head_dim - rope_dim`` elements meet keys made of the latent,
    the others one rotated key that all heads share.
    """

    rank: int
    """Width of the latent."""
    rope_dim: int
    value_dim: int
    """Width of a value head."""
    query_rank: int | None = None
    """Width of the latent that the queries are made of; None: they are made of the hidden state."""
    norm_eps: float = 1e-6
    """Of the norms of both latents, which DeepSeek's code leaves at this."""


Scoring = Literal["softmax", "sigmoid"]


@dataclass(frozen=True, slots=True)
class ExpertConfig:
    """A router and its experts: Mixtral, Qwen3-MoE, DeepSeek-V2 (arXiv 2405.04434) and V3."""

    experts: int
    top_k: int
    """Experts that each token uses."""
    ffn_size: int
    """Width of one expert."""
    shared_size: int = 0
    """Width of the network beside the experts, which every token uses; 0: none."""
    dense_layers: tuple[int, ...] = ()
    """Layers with one network of the model's ``ffn_size`` instead."""
    scoring: Scoring = "softmax"
    choice_bias: bool = False
    """Whether each expert has a bias that counts for the choice, and not for the weight (V3)."""
    normalise: bool = True
    """Whether the weights of a token's experts add up to 1, before ``scale``."""
    scale: float = 1.0
    """What the weights of the experts are multiplied by."""
    groups: int = 1
    top_groups: int = 1
    """Groups from which a token's experts may come: those whose best experts score highest."""
    group_scorers: int = 1
    """Best experts of a group whose scores are added (V2: 1, V3: 2)."""

    def __post_init__(self) -> None:
        if not 1 <= self.top_k <= self.experts:
            raise EngineError(
                f"experts: top_k {self.top_k} of {self.experts} experts is impossible"
            )
        if self.scoring not in get_args(Scoring):
            raise EngineError(f"experts: unknown scoring {self.scoring!r}: use softmax or sigmoid")
        if self.experts % self.groups or not 1 <= self.top_groups <= self.groups:
            raise EngineError(
                f"experts: {self.top_groups} of {self.groups} groups of {self.experts} experts "
                "are impossible"
            )
        size = self.experts // self.groups
        if self.group_scorers > size or self.top_k > size * self.top_groups:
            raise EngineError(f"experts: groups of {size} are too small")


RopeScalingKind = Literal["linear", "llama3", "yarn"]


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """A rule of scaling, with the names of Hugging Face configurations where they have one.

    ``linear`` divides every frequency by ``factor`` (Chen 2023, arXiv 2306.15595); ``llama3``
    those of long waves only, with a ramp between the two cut-offs (Llama 3.1); ``yarn`` does so by
    the turns within ``original_max_len`` and sharpens the scores (Peng 2023, arXiv 2309.00071).
    """

    kind: RopeScalingKind
    factor: float
    original_max_len: int = 8192
    """Longest context before the scaling, in tokens (llama3, yarn)."""
    low_freq_factor: float = 1.0
    """llama3: waves longer than ``original_max_len`` over this are scaled in full."""
    high_freq_factor: float = 4.0
    """llama3: waves shorter than ``original_max_len`` over this are not scaled."""
    beta_fast: float = 32.0
    """yarn: dimensions with more turns than this are not scaled."""
    beta_slow: float = 1.0
    """yarn: dimensions with fewer turns than this are scaled in full."""
    truncate: bool = True
    """yarn: whether the ends of the ramp are whole dimensions."""
    rotary_factor: float | None = None
    """yarn: what cosines and sines are multiplied by; None: ``yarn_magnitude(factor)``."""
    score_factor: float = 1.0
    """What the scores of latent attention are multiplied by besides (DeepSeek)."""

    def __post_init__(self) -> None:
        if self.kind not in get_args(RopeScalingKind):
            known = ", ".join(get_args(RopeScalingKind))
            raise EngineError(f"unknown rope scaling {self.kind!r}: the engine has {known}")
        if self.factor <= 0:
            raise EngineError(f"rope scaling: factor {self.factor} must be above 0")
        if self.kind == "llama3" and self.high_freq_factor <= self.low_freq_factor:
            raise EngineError("rope scaling: high_freq_factor must be above low_freq_factor")

    @property
    def magnitude(self) -> float:
        """What cosines and sines are multiplied by."""
        if self.rotary_factor is not None:
            return self.rotary_factor
        return yarn_magnitude(self.factor) if self.kind == "yarn" else 1.0


def yarn_magnitude(factor: float, mscale: float = 1.0) -> float:
    """Return 0.1 mscale ln(factor) + 1, by which YaRN sharpens queries and keys; 1 unstretched."""
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0
