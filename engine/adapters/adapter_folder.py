"""A LoRA adapter in the layout of the ``peft`` package: its config, and where its tensors belong.

LoRA (Hu et al., 2021, arXiv 2106.09685) adds ``(alpha / r) up down`` to a weight, with two matrices
of rank r. Read without torch, so that a wrong adapter is refused before a process starts.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from servetwin.engine.checkpoint.rope_parameters import KNOWN_KEYS
from servetwin.engine.checkpoint.tensor_files import DTYPE_BYTES, StoredTensor, tensors_of_file
from servetwin.engine.models.model_config import ModelConfig
from servetwin.workloads.errors import EngineError, did_you_mean
from servetwin.workloads.models.keys import Keys

CONFIG_FILE, TENSOR_FILE = "adapter_config.json", "adapter_model.safetensors"
_NAME = re.compile(
    r"base_model\.model\.model\.layers\.(\d+)\.(?:self_attn|mlp)\.(\w+)\.lora_([AB])\.weight"
)


@dataclass(frozen=True, slots=True)
class Target:
    """Outputs of one of the engine's products, and its number of inputs."""

    product: str
    start: int
    outputs: int
    inputs: int


@dataclass(frozen=True, slots=True)
class StoredUpdate:
    """The two matrices that an adapter adds to one target of one layer."""

    layer: int
    target: Target
    down_name: str
    up_name: str


@dataclass(frozen=True, slots=True)
class AdapterFolder:
    """An adapter that fits its model; ``scale`` multiplies every update."""

    name: str
    file: Path
    scale: float
    updates: tuple[StoredUpdate, ...]


def read_adapter(name: str, folder: Path, model: ModelConfig) -> AdapterFolder:
    """Return the adapter in ``folder``.

    Raises ``EngineError`` that names the file, and the key or the tensor that is wrong.
    """
    if not folder.is_dir():
        raise EngineError(f"adapter {name}: {folder}: no such folder")
    config = Keys.read(folder / CONFIG_FILE, EngineError)
    config.require_neutral(KNOWN_KEYS["adapter"])
    rank, alpha = config.count("r"), config.number("lora_alpha")
    file = folder / TENSOR_FILE
    if not file.is_file():
        raise EngineError(f"{folder}: has no {TENSOR_FILE}")
    stored = tensors_of_file(file)
    updates = tuple(_updates(file, stored, rank, model))
    divisor = math.sqrt(rank) if config.flag("use_rslora") else rank
    return AdapterFolder(name, file, alpha / divisor, updates)


def targets(model: ModelConfig) -> dict[str, Target]:
    """Return what adapters may change, by the module names of ``peft``.

    Raises ``EngineError`` for a model whose products adapters do not know.
    """
    moved = model.neighbour_pairs or model.rotary_share < 1
    if what := (
        (model.latent and "latent attention")
        or (model.experts and "experts")
        or (model.state_space and "layers with a state")
        or (moved and "pairs of rows that the engine moves")
    ):
        raise EngineError(f"adapters: model {model.name} has {what}, which no adapter changes here")
    hidden, ffn = model.hidden_size, model.ffn_size
    queries, keys = model.heads * model.head_dim, model.kv_heads * model.head_dim
    return {
        "q_proj": Target("qkv", 0, queries, hidden),
        "k_proj": Target("qkv", queries, keys, hidden),
        "v_proj": Target("qkv", queries + keys, keys, hidden),
        "o_proj": Target("attention_out", 0, hidden, queries),
        "gate_proj": Target("gate_up", 0, ffn, hidden),
        "up_proj": Target("gate_up", ffn, ffn, hidden),
        "down_proj": Target("down", 0, hidden, ffn),
    }


def _updates(
    file: Path, stored: Mapping[str, StoredTensor], rank: int, model: ModelConfig
) -> list[StoredUpdate]:
    known, updates = targets(model), dict[tuple[int, str], dict[str, str]]()
    for tensor in stored:
        match = _NAME.fullmatch(tensor)
        if match is None or match[2] not in known:
            module = match[2] if match else tensor
            raise EngineError(
                f"{file}: tensor {tensor}: {did_you_mean(module, known, ', '.join(known))}"
            )
        layer = int(match[1])
        if layer >= model.layers:
            raise EngineError(
                f"{file}: tensor {tensor}: model {model.name} has {model.layers} layers"
            )
        updates.setdefault((layer, match[2]), {})[match[3]] = tensor
    if not updates:
        raise EngineError(f"{file}: has no tensor of an adapter")
    return [
        _update(file, stored, rank, layer, known[module], names)
        for (layer, module), names in sorted(updates.items())
    ]


def _update(
    file: Path,
    stored: Mapping[str, StoredTensor],
    rank: int,
    layer: int,
    target: Target,
    names: Mapping[str, str],
) -> StoredUpdate:
    for letter, shape in (("A", (rank, target.inputs)), ("B", (target.outputs, rank))):
        if letter not in names:
            other = next(iter(names.values()))
            raise EngineError(f"{file}: has {other}, and no lora_{letter} beside it")
        tensor = stored[names[letter]]
        if tensor.shape != shape:
            raise EngineError(
                f"{file}: tensor {names[letter]} is {list(tensor.shape)}; the model and rank "
                f"{rank} want {list(shape)}"
            )
        if tensor.dtype not in DTYPE_BYTES:
            raise EngineError(
                f"{file}: tensor {names[letter]} is {tensor.dtype}; use {', '.join(DTYPE_BYTES)}"
            )
    return StoredUpdate(layer, target, names["A"], names["B"])
