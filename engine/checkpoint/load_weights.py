"""Load the weights of a checkpoint: one tensor at a time out of mapped files."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from servetwin.engine.checkpoint import tensor_layout as layout
from servetwin.engine.checkpoint.tensor_files import StoredTensor
from servetwin.engine.checkpoint.tensor_layout import Rotated, Stack
from servetwin.engine.models.model_config import ModelConfig
from servetwin.engine.models.weights import (
    AttentionWeights,
    ExpertWeights,
    FeedForwardWeights,
    LatentWeights,
    LayerWeights,
    Weights,
)
from servetwin.workloads.errors import EngineError


@dataclass(frozen=True, slots=True)
class CheckpointWeights:
    """``LoadWeights`` of a checkpoint that ``check_tensors`` has found whole."""

    model: ModelConfig
    stored: Mapping[str, StoredTensor]

    def __call__(self, dtype: torch.dtype, device: torch.device) -> Weights:
        """Return the weights. Layers are read when they are asked for, and not kept."""
        with _MappedFiles(self.stored, dtype, device) as files:
            embedding = files.read(layout.embedding(self.model))
            final_norm = files.read(layout.final_norm(self.model))
            tied = self.model.tie_embeddings
            head = embedding if tied else files.read(layout.head(self.model))
        return Weights(embedding, _Layers(self, dtype, device), final_norm, head)


@dataclass(frozen=True, slots=True)
class _Layers:
    """The layers of a checkpoint, read anew in each iteration."""

    checkpoint: CheckpointWeights
    dtype: torch.dtype
    device: torch.device

    def __iter__(self) -> Iterator[LayerWeights]:
        for index in range(self.checkpoint.model.layers):
            with _MappedFiles(self.checkpoint.stored, self.dtype, self.device) as files:
                yield _layer(files, self.checkpoint.model, index)


def _layer(files: "_MappedFiles", model: ModelConfig, index: int) -> LayerWeights:
    attention_norm, ffn_norm = map(files.read, layout.layer_norms(model, index))
    attention: AttentionWeights | LatentWeights
    if model.latent:
        attention = LatentWeights(**files.fields(layout.latent_attention(model, index)))
    else:
        attention = AttentionWeights(**files.fields(layout.attention(model, index)))
    if model.has_experts(index):
        return LayerWeights(attention_norm, attention, ffn_norm, _experts(files, model, index))
    ffn = FeedForwardWeights(**files.fields(layout.feed_forward(model, index)))
    return LayerWeights(attention_norm, attention, ffn_norm, ffn)


def _experts(files: "_MappedFiles", model: ModelConfig, index: int) -> ExpertWeights:
    stacks = layout.experts(model, index, layout.expert_names(files.names))
    bias, shared = stacks.choice_bias, stacks.shared
    return ExpertWeights(
        router=files.read(stacks.router),
        experts=[FeedForwardWeights(**files.fields(network)) for network in stacks.experts],
        choice_bias=files.read(bias, torch.float32) if bias else None,
        shared=FeedForwardWeights(**files.fields(shared)) if shared else None,
    )


class _MappedFiles:
    """Reads tensors out of files that are mapped until the ``with`` block ends."""

    def __init__(
        self, stored: Mapping[str, StoredTensor], dtype: torch.dtype, device: torch.device
    ) -> None:
        self._stored = stored
        self._dtype = dtype
        self._device = device
        self._open: dict[Path, Any] = {}
        self._to_close = ExitStack()

    def __enter__(self) -> "_MappedFiles":
        return self

    def __exit__(self, *error: object) -> None:
        self._open.clear()
        self._to_close.close()

    @property
    def names(self) -> Collection[str]:
        """The tensors of the checkpoint."""
        return self._stored.keys()

    def fields(self, stacks: Mapping[str, Stack]) -> dict[str, Tensor]:
        """Return the tensor of each stack."""
        return {name: self.read(stack) for name, stack in stacks.items()}

    def read(self, stack: Stack, dtype: torch.dtype | None = None) -> Tensor:
        """Return one tensor with the rows of all parts."""
        sizes = [part.shape[0] for part in stack]
        shape = (sum(sizes), *stack[0].shape[1:])
        whole = torch.empty(shape, dtype=dtype or self._dtype, device=self._device)
        for part, rows in zip(stack, whole.split_with_sizes(sizes), strict=True):
            tensor = self._file(part.name).get_tensor(part.name)
            rows.copy_(in_halves(tensor, part.rotated) if part.rotated else tensor)
            if rows.dtype == torch.float16 and not rows.isfinite().all():
                file = self._stored[part.name].file
                raise EngineError(f"{file}: tensor {part.name} does not fit float16: use bfloat16")
        return whole

    def _file(self, name: str) -> Any:
        path = self._stored[name].file
        if path not in self._open:
            self._open[path] = self._to_close.enter_context(safe_open(path, framework="pt"))
        return self._open[path]


def in_halves(tensor: Tensor, rotated: Rotated) -> Tensor:
    """Return the rows with the first rows of all pairs of a group before the second ones."""
    groups = torch.arange(tensor.shape[0]).view(-1, rotated.group_rows)
    plain = rotated.group_rows - rotated.rope_rows
    pairs = groups[:, plain:]
    order = torch.cat((groups[:, :plain], pairs[:, ::2], pairs[:, 1::2]), dim=1)
    return tensor.index_select(0, order.flatten())
