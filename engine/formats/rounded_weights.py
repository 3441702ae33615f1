"""Weights rounded to the nearest of few numbers, and what they stand for (reference)."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

_INT8, _INT4_STEPS, _INT4_MIDDLE = 127, 15, 8


@dataclass(frozen=True, slots=True)
class Int8Weight:
    """``scale * code``, with a scale for each output: codes are -127 to 127."""

    codes: Tensor
    """int8 [output size, input size]."""
    scales: Tensor
    """float32 [output size]."""

    @classmethod
    def of(cls, weight: Tensor) -> "Int8Weight":
        """Round each row by its largest magnitude."""
        wide = weight.float()
        scales = wide.abs().amax(1).div_(_INT8).clamp_min_(torch.finfo(torch.float32).tiny)
        return cls((wide / scales[:, None]).round_().to(torch.int8), scales)

    @property
    def bytes(self) -> int:
        """Size of codes and scales."""
        return self.codes.nbytes + self.scales.nbytes

    def restored(self) -> Tensor:
        """Return the weight that the codes stand for, in float32."""
        return self.codes.float() * self.scales[:, None]


@dataclass(frozen=True, slots=True)
class Int4Weight:
    """``scale * (code - 8) + middle`` with both for each ``group`` of inputs: codes are 0 to 15.

    The last group of a row may be shorter.
    """

    codes: Tensor
    """uint8 [output size, input size]."""
    scales: Tensor
    """bfloat16 [output size, groups], as ``middles``."""
    middles: Tensor
    group: int

    @classmethod
    def of(cls, weight: Tensor, group: int) -> "Int4Weight":
        """Spread 16 numbers over the range of each group."""
        outputs, inputs = weight.shape
        padded = F.pad(weight.float()[None], (0, -inputs % group), mode="replicate")[0]
        grouped = padded.view(outputs, -1, group)
        lowest, highest = grouped.amin(2), grouped.amax(2)
        steps = (highest - lowest) / _INT4_STEPS
        scales = steps.clamp_min_(torch.finfo(torch.float32).tiny).bfloat16()
        middles = (lowest + _INT4_MIDDLE * scales.float()).bfloat16()
        codes = (grouped - middles.float()[..., None]) / scales.float()[..., None]
        codes = codes.add_(_INT4_MIDDLE).round_().clamp_(0, _INT4_STEPS).to(torch.uint8)
        return cls(codes.view(outputs, -1)[:, :inputs].contiguous(), scales, middles, group)

    @property
    def bytes(self) -> int:
        """Size with two codes in a byte."""
        return -(-self.codes.nbytes // 2) + self.scales.nbytes + self.middles.nbytes

    def restored(self) -> Tensor:
        """Return the weight that the codes stand for, in float32."""
        inputs = self.codes.shape[1]
        by_input = (self.scales.float(), self.middles.float())
        scales, middles = (x.repeat_interleave(self.group, 1)[:, :inputs] for x in by_input)
        return (self.codes.float() - _INT4_MIDDLE) * scales + middles


class QuantisedProduct(ABC):
    """A product with rounded weights."""

    backend: str
    """Which kernel multiplies."""

    def __init__(self, weight: Int8Weight | Int4Weight) -> None:
        # Size of the rounded weights.
        self.bytes = weight.bytes

    @abstractmethod
    def __call__(self, x: Tensor) -> Tensor:
        """Map [rows, input size] to [rows, output size]."""


def round_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return codes -127 to 127 of each row of the last axis, still as float32, and the scales
    [..., 1].
    """
    steps = x.abs().amax(-1, keepdim=True).float().div_(_INT8)
    scales = steps.clamp_min_(torch.finfo(torch.float32).tiny)
    return (x.float() / scales).round_(), scales
