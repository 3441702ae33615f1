"""Checkpoints in folders, written by transformers."""

import contextlib
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from servetwin.engine.models.model_config import ModelConfig
from tests.support.engine_oracle import CONFIG, draw_weights
from tests.support.text_tokenizers import byte_level, write_tokenizer
from tests.support.transformers_models import transformers_model

SHARD = "400KB"
"""Less than any test model needs."""
LLAMA = replace(CONFIG, kv_heads=2, max_model_len=256)


def write_checkpoint(
    folder: Path,
    config: ModelConfig = LLAMA,
    *,
    sharded: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Path:
    """Write the model with the weights of ``draw_weights``, and a byte-level tokenizer."""
    model: Any = transformers_model(config, draw_weights(config=config)).to(dtype)
    model.generation_config.eos_token_id = 1
    with contextlib.redirect_stderr(io.StringIO()):  # a progress bar
        model.save_pretrained(folder, max_shard_size=SHARD if sharded else "1GB")
    write_tokenizer(folder, byte_level())
    return folder


def edit_json(path: Path, **changes: Any) -> None:
    """Change keys of a JSON file; one that becomes ``...`` is removed."""
    values = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in values.items() if value is not ...}))


def edit_tensors(path: Path, edit: Callable[[dict[str, torch.Tensor]], None]) -> None:
    """Change the tensors of a safetensors file."""
    from safetensors.torch import load_file, save_file

    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    edit(tensors)
    save_file(tensors, path, {"format": "pt"})
