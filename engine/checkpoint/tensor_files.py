"""The safetensors files of a checkpoint: where tensors lie, whether all are whole, and no others.

The headers are read without torch, so that a wrong checkpoint is refused before a process starts.
"""

import json
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from servetwin.engine.models.model_config import ModelConfig
from servetwin.engine.models.tensor_layout import Part, all_parts, head_name
from servetwin.workloads.errors import EngineError
from servetwin.workloads.models.keys import Keys

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
# The number formats of tensors that the engine reads, in the names of safetensors.
DTYPE_BYTES = {"F32": 4, "BF16": 2, "F16": 2}
_LARGEST_HEADER = 100_000_000


class StoredTensor(NamedTuple):
    """A tensor as the header of its file describes it."""

    file: Path
    dtype: str
    shape: tuple[int, ...]


def stored_tensors(folder: Path) -> dict[str, StoredTensor]:
    """Return the tensors of a checkpoint by name, of one file or of those of its index.

    Raises ``EngineError`` for a file that is missing, truncated or no safetensors file, and for a
    tensor that the index names and its shard lacks.
    """
    index = folder / INDEX_FILE
    if not index.is_file():
        return tensors_of_file(_single_file(folder))
    shards = _shards(index)
    stored: dict[str, StoredTensor] = {}
    for shard in sorted(set(shards.values())):
        if not (folder / shard).is_file():
            raise EngineError(f"{index}: weight_map names {shard}, and there is no such file")
        stored |= tensors_of_file(folder / shard)
    for name, shard in shards.items():
        if name not in stored or stored[name].file.name != shard:
            raise EngineError(f"{folder / shard}: has no {name}, which {index.name} says it has")
    return stored


def _single_file(folder: Path) -> Path:
    path = folder / SINGLE_FILE
    if path.is_file():
        return path
    pickled = [*folder.glob("*.bin"), *folder.glob("*.pt"), *folder.glob("*.pth")]
    instead = f"; {pickled[0].name} is not read: convert it to safetensors" if pickled else ""
    raise EngineError(f"{folder}: has neither {SINGLE_FILE} nor {INDEX_FILE}{instead}")


def _shards(index: Path) -> Mapping[str, str]:
    shards = Keys.read(index, EngineError).part("weight_map")
    if shards is None:
        raise EngineError(f"{index}: weight_map is missing")
    for name, shard in shards.values.items():
        if not isinstance(shard, str) or Path(shard).name != shard:
            raise EngineError(f"{index}: weight_map: {name} must name a file of the folder")
    return shards.values


def tensors_of_file(path: Path) -> dict[str, StoredTensor]:
    """Return the tensors of one file by name.

    Raises ``EngineError`` where it is truncated, or no safetensors file.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        if len(start) < 8 or (length := struct.unpack("<Q", start)[0]) > _LARGEST_HEADER:
            raise EngineError(f"{path}: is no safetensors file")
        header = file.read(length)
    if len(header) < length:
        raise EngineError(f"{path}: is truncated: it ends within its header")
    return _tensors(path, header, size - 8 - length)


def _tensors(path: Path, header: bytes, data_bytes: int) -> dict[str, StoredTensor]:
    """Return what a header describes, where its file has all the bytes."""
    try:
        entries = {k: v for k, v in json.loads(header).items() if k != "__metadata__"}
        tensors = {k: StoredTensor(path, v["dtype"], tuple(v["shape"])) for k, v in entries.items()}
        end = max((entry["data_offsets"][1] for entry in entries.values()), default=0)
    except (ValueError, AttributeError, KeyError, TypeError, IndexError):
        raise EngineError(f"{path}: is no safetensors file: its header makes no sense") from None
    if data_bytes < end:
        raise EngineError(f"{path}: is truncated: {data_bytes} of {end} bytes of tensors are there")
    return tensors


# Tensors of old files that are computed, and not learned.
_HARMLESS = re.compile(r"(^|\.)(rotary_emb\.inv_freq|masked_bias|attn\.bias|attention\.bias)$")
_NAMED_AT_MOST = 3


def check_tensors(model: ModelConfig, stored: Mapping[str, StoredTensor], where: str) -> None:
    """Raise ``EngineError`` that names a tensor which is missing, misshapen, of a number format
    that is not read, or not of this model. ``where`` names the folder.
    """
    expected = {part.name: part for part in all_parts(model)}
    missing = [name for name in expected if name not in stored]
    extra = [name for name in stored if name not in expected and not _is_harmless(model, name)]
    if missing:
        tied = " (and tie_word_embeddings is not true)" if missing == [head_name(model)] else ""
        has = f"; it has {extra[0]}, which the model has not" if extra else ""
        raise EngineError(f"{where}: {_named(missing)} missing{tied}{has}")
    if extra:
        raise EngineError(
            f"{where}: {_named(extra)} not of the model that config.json describes, and would be "
            "left out"
        )
    for part in expected.values():
        _check(part, stored[part.name])


def has_same_tensors(model: ModelConfig, other: ModelConfig) -> bool:
    """Return whether the weights of one model are as many and as large as those of the other."""
    return [*all_parts(model)] == [*all_parts(other)]


def _check(part: Part, stored: StoredTensor) -> None:
    if stored.shape != part.stored_shape:
        raise EngineError(
            f"{stored.file}: tensor {part.name} is {list(stored.shape)}, and config.json makes it "
            f"{list(part.stored_shape)}"
        )
    if stored.dtype not in DTYPE_BYTES:
        raise EngineError(
            f"{stored.file}: tensor {part.name} is of {stored.dtype}; the engine reads "
            f"{', '.join(DTYPE_BYTES)}"
        )


def _is_harmless(model: ModelConfig, name: str) -> bool:
    return bool(_HARMLESS.search(name)) or (model.tie_embeddings and name == head_name(model))


def _named(names: list[str]) -> str:
    """Return a beginning of a sentence on some tensors, up to its verb."""
    if len(names) == 1:
        return f"tensor {names[0]} is"
    more = len(names) - _NAMED_AT_MOST
    return (
        f"tensors {', '.join(names[:_NAMED_AT_MOST])}{f' and {more} more' if more > 0 else ''} are"
    )
