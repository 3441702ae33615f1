"""The safetensors files of a checkpoint: which tensor lies where, and whether all are whole.

The headers are read without torch, so that a wrong checkpoint is refused before a process starts.
"""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from servetwin.engine.checkpoint.json_file import JsonObject
from servetwin.workloads.errors import EngineError

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
DTYPE_BYTES = {"F32": 4, "BF16": 2, "F16": 2}
"""The number formats of tensors that the engine reads, in the names of safetensors."""
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
    found: dict[str, StoredTensor] = {}
    for shard in sorted(set(shards.values())):
        if not (folder / shard).is_file():
            raise EngineError(f"{index}: weight_map names {shard}, and there is no such file")
        found |= tensors_of_file(folder / shard)
    for name, shard in shards.items():
        if name not in found or found[name].file.name != shard:
            raise EngineError(f"{folder / shard}: has no {name}, which {index.name} says it has")
    return found


def _single_file(folder: Path) -> Path:
    path = folder / SINGLE_FILE
    if path.is_file():
        return path
    pickled = [*folder.glob("*.bin"), *folder.glob("*.pt"), *folder.glob("*.pth")]
    instead = f"; {pickled[0].name} is not read: convert it to safetensors" if pickled else ""
    raise EngineError(f"{folder}: has neither {SINGLE_FILE} nor {INDEX_FILE}{instead}")


def _shards(index: Path) -> Mapping[str, str]:
    shards = JsonObject.read(index).part("weight_map")
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
        found = {k: StoredTensor(path, v["dtype"], tuple(v["shape"])) for k, v in entries.items()}
        end = max((entry["data_offsets"][1] for entry in entries.values()), default=0)
    except (ValueError, AttributeError, KeyError, TypeError, IndexError):
        raise EngineError(f"{path}: is no safetensors file: its header makes no sense") from None
    if data_bytes < end:
        raise EngineError(f"{path}: is truncated: {data_bytes} of {end} bytes of tensors are there")
    return found
