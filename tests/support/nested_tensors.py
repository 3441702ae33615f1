"""The tensors of nested weights."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

import torch


def tensors_of(part: object) -> Iterator[torch.Tensor]:
    """Yield the tensors of weights, or of a part of them, in the order of their fields."""
    if isinstance(part, torch.Tensor):
        yield part
    elif isinstance(part, list):
        for item in part:
            yield from tensors_of(item)
    elif is_dataclass(part):
        for field in fields(part):
            yield from tensors_of(getattr(part, field.name))
