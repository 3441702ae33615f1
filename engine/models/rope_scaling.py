"""How the frequencies of rotary positions are stretched for long contexts. Free of torch."""

import math
from dataclasses import dataclass
from typing import Literal

from servetwin.workloads.errors import EngineError

RopeScalingKind = Literal["linear", "llama3", "yarn", "longrope"]


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """A rule of scaling, with the names of Hugging Face configurations where they have one.

    ``linear`` divides every frequency by ``factor`` (Chen 2023, arXiv 2306.15595); ``llama3``
    those of long waves only, with a ramp between the two cut-offs (Llama 3.1); ``yarn`` does so by
    the turns within ``original_max_len`` and sharpens the scores (Peng 2023, arXiv 2309.00071);
    ``longrope`` divides each by its own of ``divisors`` (Ding 2024, arXiv 2402.13753).

    ``original_max_len``: longest context before the scaling, in tokens (llama3, yarn).
    ``low_freq_factor``: llama3: waves longer than ``original_max_len`` over this are scaled in
    full. ``high_freq_factor``: llama3: waves shorter than ``original_max_len`` over this are not
    scaled. ``beta_fast``: yarn: dimensions with more turns than this are not scaled. ``beta_slow``:
    yarn: dimensions with fewer turns than this are scaled in full. ``truncate``: yarn: whether the
    ends of the ramp are whole dimensions. ``rotary_factor``: yarn: what cosines and sines are
    multiplied by; None: ``yarn_magnitude(factor)``. ``score_factor``: what the scores of latent
    attention are multiplied by besides (DeepSeek).
    """

    kind: RopeScalingKind
    factor: float
    original_max_len: int = 8192
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    rotary_factor: float | None = None
    divisors: tuple[float, ...] = ()
    score_factor: float = 1.0

    def __post_init__(self) -> None:
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
