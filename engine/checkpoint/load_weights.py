"""Load the weights of a checkpoint: one tensor at a time out of mapped files."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from servetwin.engine.checkpoint.tensor_files import StoredTensor
from servetwin.engine.models.model_config import ModelConfig
from servetwin.engine.models.tensor_layout import (
    CHOICE_BIAS,
    Order,
    Stack,
    Stacks,
    expert_names,
    layer_stacks,
    model_stacks,
)
from servetwin.engine.models.weights import LayerWeights, Weights, stack_shape
from servetwin.workloads.errors import EngineError


@dataclass(frozen=True, slots=True)
class CheckpointWeights:
    """``LoadWeights`` of a checkpoint that ``check_tensors`` has found whole."""

    model: ModelConfig
    stored: Mapping[str, StoredTensor]

    def __call__(self, dtype: torch.dtype, device: torch.device) -> Weights:
        """Return the weights. Layers are read when they are needed, and not kept."""
        outside = _read(self, model_stacks(self.model), dtype, device)
        embedding, head = outside["embedding"], outside.get("head", outside["embedding"])
        return Weights(embedding, _Layers(self, dtype, device), outside["final_norm"], head)


@dataclass(frozen=True, slots=True)
class _Layers:
    """The layers of a checkpoint, read anew in each iteration."""

    checkpoint: CheckpointWeights
    dtype: torch.dtype
    device: torch.device

    def __iter__(self) -> Iterator[LayerWeights]:
        model, names = self.checkpoint.model, expert_names(self.checkpoint.stored)
        for layer in range(model.layers):
            stacks = layer_stacks(model, layer, names)
            yield _read(self.checkpoint, stacks, self.dtype, self.device)


def _read(
    checkpoint: CheckpointWeights, stacks: Stacks, dtype: torch.dtype, device: torch.device
) -> dict[str, Tensor]:
    """Return the weight that each stack makes; the files are mapped in the meantime."""
    less_one = checkpoint.model.norms.plus_one
    with _MappedFiles(checkpoint.stored) as files:
        weights = {
            name: files.weight(stack, torch.float32 if name == CHOICE_BIAS else dtype, device)
            for name, stack in stacks.items()
        }
    norms = [name for name in weights if less_one and name.endswith("norm")]
    return weights | {name: weights[name] + 1 for name in norms}


class _MappedFiles:
    """Reads tensors out of files that are mapped until the ``with`` block ends."""

    def __init__(self, stored: Mapping[str, StoredTensor]) -> None:
        self._stored = stored
        self._open: dict[Path, Any] = {}
        self._to_close = ExitStack()

    def __enter__(self) -> "_MappedFiles":
        return self

    def __exit__(self, *error: object) -> None:
        self._open.clear()
        self._to_close.close()

    def weight(self, stack: Stack, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return one tensor with the rows of all parts."""
        whole = torch.empty(stack_shape(stack), dtype=dtype, device=device)
        sizes = [part.shape[0] for part in stack]
        for part, rows in zip(stack, whole.split_with_sizes(sizes), strict=True):
            tensor = self._file(part.name).get_tensor(part.name)
            rows.copy_(ordered(tensor, part.order) if part.order else tensor)
            if rows.dtype == torch.float16 and not rows.isfinite().all():
                file = self._stored[part.name].file
                raise EngineError(f"{file}: tensor {part.name} does not fit float16: use bfloat16")
        return whole

    def _file(self, name: str) -> Any:
        path = self._stored[name].file
        if path not in self._open:
            self._open[path] = self._to_close.enter_context(safe_open(path, framework="pt"))
        return self._open[path]


def ordered(tensor: Tensor, order: Order) -> Tensor:
    """Return the rows of each group in the order that the engine has."""
    groups = torch.arange(tensor.shape[0]).view(-1, len(order))
    return tensor.index_select(0, groups[:, list(order)].flatten())
