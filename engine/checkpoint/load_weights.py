"""Load the weights of a checkpoint: one tensor at a time out of mapped files."""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from servetwin.engine.checkpoint import tensor_layout as layout
from servetwin.engine.checkpoint.tensor_files import DTYPE_BYTES, StoredTensor
from servetwin.engine.checkpoint.tensor_layout import (
    HEAD,
    ExpertNames,
    Part,
    Rotated,
    Stack,
    all_parts,
    expert_names,
)
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

_HARMLESS = re.compile(r"(^|\.)(rotary_emb\.inv_freq|masked_bias|attn\.bias)$")
"""Tensors of old files that are computed, and not learned."""
_NAMED_AT_MOST = 3


def check_tensors(model: ModelConfig, stored: Mapping[str, StoredTensor], where: str) -> None:
    """Raise ``EngineError`` that names a tensor which is missing, misshapen, of a number format
    that is not read, or not of this model. ``where`` names the folder.
    """
    expected = {part.name: part for part in all_parts(model, expert_names(stored))}
    missing = [name for name in expected if name not in stored]
    extra = [name for name in stored if name not in expected and not _is_harmless(model, name)]
    if missing:
        has = f"; it has {extra[0]}, which the model has not" if extra else ""
        raise EngineError(f"{where}: {_named(missing)} missing{_tied(missing)}{has}")
    if extra:
        raise EngineError(
            f"{where}: {_named(extra)} not of the model that config.json describes, and would be "
            "left out"
        )
    for part in expected.values():
        _check(part, stored[part.name])


def has_same_tensors(model: ModelConfig, other: ModelConfig) -> bool:
    """Return whether the weights of one model are as many and as large as those of the other."""
    names = ExpertNames()
    return [*all_parts(model, names)] == [*all_parts(other, names)]


def _check(part: Part, stored: StoredTensor) -> None:
    if stored.shape != part.shape:
        raise EngineError(
            f"{stored.file}: tensor {part.name} is {list(stored.shape)}, and config.json makes it "
            f"{list(part.shape)}"
        )
    if stored.dtype not in DTYPE_BYTES:
        raise EngineError(
            f"{stored.file}: tensor {part.name} is of {stored.dtype}; the engine reads "
            f"{', '.join(DTYPE_BYTES)}"
        )


def _is_harmless(model: ModelConfig, name: str) -> bool:
    return bool(_HARMLESS.search(name)) or (name == HEAD and model.tie_embeddings)


def _named(names: list[str]) -> str:
    """Return a beginning of a sentence on some tensors, up to its verb."""
    if len(names) == 1:
        return f"tensor {names[0]} is"
    more = len(names) - _NAMED_AT_MOST
    return (
        f"tensors {', '.join(names[:_NAMED_AT_MOST])}{f' and {more} more' if more > 0 else ''} are"
    )


def _tied(missing: list[str]) -> str:
    return " (and tie_word_embeddings is not true)" if missing == [HEAD] else ""


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
