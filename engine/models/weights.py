"""The weights of a decoder, and random ones. Matrices are [output size, input size].

``LayerWeights``: the weights of a layer by name, as ``tensor_layout`` has them. Of each head that
is rotated, the first halves of all pairs stand before the second ones. ``LoadWeights``: makes the
weights of a known model in a number format on a device.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from servetwin.engine.models.model_config import ModelConfig
from servetwin.engine.models.tensor_layout import CHOICE_BIAS, Stack, layer_stacks, model_stacks

LayerWeights = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Weights:
    """A whole decoder; ``head`` is ``embedding`` itself where they are tied.

    ``layers`` are the ``distinct_layers``; a checkpoint reads each when it is its turn, so that no
    two copies are in memory.

    ``others``: what some models have besides: ``positions``, ``final_norm_bias``.
    """

    embedding: Tensor
    layers: Iterable[LayerWeights]
    final_norm: Tensor
    head: Tensor
    others: Mapping[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, outside: Mapping[str, Tensor], layers: Iterable[LayerWeights]) -> "Weights":
        """Return a decoder of its layers and the weights ``outside``, as in ``model_stacks``."""
        embedding = outside["embedding"]
        return cls(
            embedding, layers, outside["final_norm"], outside.get("head", embedding), outside
        )


LoadWeights = Callable[[torch.dtype, torch.device], Weights]


def random_weights(
    config: ModelConfig, dtype: torch.dtype, device: torch.device, *, seed: int, std: float
) -> Weights:
    """Draw normal weights of deviation ``std`` (norms around 1), equal for equal seed and device
    type.

    They are drawn on ``device``: a model of billions of weights starts in seconds on a GPU.
    """
    draw = partial(_draw, torch.Generator(device).manual_seed(seed), std, dtype)
    stacks = model_stacks(config)
    embedding = draw("embedding", stacks.pop("embedding"))
    layers = [
        {name: draw(name, stack) for name, stack in layer_stacks(config, layer).items()}
        for layer in config.distinct_layers
    ]
    outside = {name: draw(name, stack) for name, stack in stacks.items()}
    return Weights.of({"embedding": embedding} | outside, layers)


def stack_shape(stack: Stack) -> tuple[int, ...]:
    """Return the shape of the weight that the parts of a stack make."""
    return sum(part.shape[0] for part in stack), *stack[0].shape[1:]


def _draw(
    generator: torch.Generator, std: float, dtype: torch.dtype, name: str, stack: Stack
) -> Tensor:
    """Draw in float32 and round, so that every dtype sees the same numbers."""
    tensor = torch.empty(stack_shape(stack), device=generator.device)
    mean = 1.0 if name.endswith("norm") else 0.0
    rounded = tensor.normal_(mean, std, generator=generator).to(dtype)
    return rounded.float() if name == CHOICE_BIAS else rounded
