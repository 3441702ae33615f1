"""Rotary positions (RoFormer, arXiv 2104.09864): frequencies, their table, and the rotation."""

import math

import torch
from torch import Tensor

from servetwin.engine.models.model_config import ModelConfig
from servetwin.engine.models.rope_scaling import RopeScaling


class RotaryTable:
    """Cosines and sines of positions, grown when needed."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> None:
        self._frequencies = rotary_frequencies(config, device)
        self._magnitude = config.rope_scaling.magnitude if config.rope_scaling else 1.0
        self._dtype = dtype
        self._cos = self._sin = torch.empty(0, device=device)

    def at(self, positions: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Return the factors [rows, 1, rotary width] for ``rotate``; all ``positions`` are below
        ``length``.
        """
        if length > len(self._cos):
            self._grow(1 << (length - 1).bit_length())
        cos, sin = self._cos.index_select(0, positions), self._sin.index_select(0, positions)
        return cos.unsqueeze(1), sin.unsqueeze(1)

    def _grow(self, length: int) -> None:
        positions = torch.arange(length, device=self._frequencies.device)
        angles = torch.outer(positions.float(), self._frequencies)
        cos, sin = angles.cos() * self._magnitude, angles.sin() * self._magnitude
        self._cos = torch.cat((cos, cos), dim=1).to(self._dtype)
        self._sin = torch.cat((-sin, sin), dim=1).to(self._dtype)


def rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn [rows, heads, width] by position; element i pairs with i + width / 2."""
    return torch.addcmul(heads * cos, heads.roll(heads.shape[2] // 2, 2), sin)


def rotary_frequencies(config: ModelConfig, device: torch.device) -> Tensor:
    """Return the angle per position of each pair, in radians, stretched as the model says.

    Pairs that do not turn are the last ones, with an angle of 0.
    """
    turning = _turning_frequencies(config, device)
    still = config.rotary_width // 2 - len(turning)
    return torch.cat((turning, turning.new_zeros(still)))


def _turning_frequencies(config: ModelConfig, device: torch.device) -> Tensor:
    width, scaling = config.rotary_dim, config.rope_scaling
    exponents = torch.arange(0, width, 2, device=device).float() / max(width, 1)
    plain = 1.0 / config.rope_theta**exponents
    if scaling is None:
        return plain
    if scaling.kind == "longrope":
        return plain / torch.tensor(scaling.divisors, device=device)
    stretched = plain / scaling.factor
    if scaling.kind == "linear":
        return stretched
    share = _llama3_kept(scaling, plain) if scaling.kind == "llama3" else _yarn_kept(config, plain)
    return stretched * (1 - share) + plain * share


def _llama3_kept(scaling: RopeScaling, frequencies: Tensor) -> Tensor:
    """Return the share of each frequency that stays: 1 for short waves, 0 for long ones."""
    turns = scaling.original_max_len * frequencies / (2 * math.pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    return ((turns - low) / (high - low)).clamp(0, 1)


def _yarn_kept(config: ModelConfig, frequencies: Tensor) -> Tensor:
    """Return the share of each frequency that stays: 1 for many turns, 0 for few."""
    scaling, width = config.rope_scaling, config.rotary_dim
    assert scaling is not None

    def pair_of(turns: float) -> float:
        """Return the pair, as a fraction, that turns so often within the original context."""
        wave = scaling.original_max_len / (turns * 2 * math.pi)
        return width * math.log(wave) / (2 * math.log(config.rope_theta))

    first, last = pair_of(scaling.beta_fast), pair_of(scaling.beta_slow)
    if scaling.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, width - 1)
    if first == last:
        last += 0.001
    pairs = torch.arange(width // 2, device=frequencies.device).float()
    return 1 - ((pairs - first) / (last - first)).clamp(0, 1)
