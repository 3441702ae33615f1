"""Load the weights of a checkpoint: one tensor at a time out of mapped files."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from servetwin.engine.checkpoint.tensor_files import StoredTensor
from servetwin.engine.models import tensor_layout
from servetwin.engine.models.model_config import ModelConfig
from servetwin.engine.models.weights import Weights, stack_shape
from servetwin.workloads.errors import EngineError


@dataclass(frozen=True, slots=True)
class CheckpointWeights:
    """``LoadWeights`` of a checkpoint that ``check_tensors`` has found whole."""

    model: ModelConfig
    stored: Mapping[str, StoredTensor]

    def __call__(self, dtype: torch.dtype, device: torch.device) -> Weights:
        """Return the weights. Layers are read when it is their turn, and not kept."""
        model, read = self.model, partial(self._read, dtype, device)
        layers = (read(tensor_layout.layer_stacks(model, layer)) for layer in model.distinct_layers)
        return Weights.of(read(tensor_layout.model_stacks(model)), layers)

    def _read(
        self, dtype: torch.dtype, device: torch.device, stacks: tensor_layout.Stacks
    ) -> dict[str, Tensor]:
        """Return the weight that each stack makes; the files are mapped in the meantime."""
        places = {self.stored[part.name].file for stack in stacks.values() for part in stack}
        with ExitStack() as mapped:
            files = {at: mapped.enter_context(safe_open(at, framework="pt")) for at in places}
            weights: dict[str, Tensor] = {}
            for name, stack in stacks.items():
                own = torch.float32 if name == tensor_layout.CHOICE_BIAS else dtype
                weights[name] = torch.empty(stack_shape(stack), dtype=own, device=device)
                self._fill(weights[name], stack, files)
        less_one = self.model.norms.plus_one
        norms = [name for name in weights if less_one and name.endswith("norm")]
        return weights | {name: weights[name] + 1 for name in norms}

    def _fill(self, whole: Tensor, stack: tensor_layout.Stack, files: Mapping[Path, Any]) -> None:
        """Copy the rows of all parts."""
        sizes = [part.shape[0] for part in stack]
        for part, rows in zip(stack, whole.split_with_sizes(sizes), strict=True):
            file = self.stored[part.name].file
            rows.copy_(_tensor(files[file], part))
            if rows.dtype == torch.float16 and not rows.isfinite().all():
                raise EngineError(f"{file}: tensor {part.name} does not fit float16: use bfloat16")


def _tensor(file: Any, part: tensor_layout.Part) -> Tensor:
    """Return a part as the engine has it."""
    tensor: Tensor = (
        file.get_slice(part.name)[part.stacked[0]] if part.stacked else file.get_tensor(part.name)
    )
    tensor = tensor.T if part.transposed else tensor
    return ordered(tensor, part.order) if part.order else tensor


def ordered(tensor: Tensor, order: tensor_layout.Order) -> Tensor:
    """Return the rows of each group in the order that the engine has."""
    groups = torch.arange(tensor.shape[0]).view(-1, len(order))
    return tensor.index_select(0, groups[:, list(order)].flatten())
