"""LoRA adapters as the ``peft`` package writes them, with seeded random matrices."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from servetwin.engine.adapters.adapter_folder import CONFIG_FILE, TENSOR_FILE, targets
from servetwin.engine.models.model_config import ModelConfig

MODULES = {
    "q_proj": "self_attn",
    "k_proj": "self_attn",
    "v_proj": "self_attn",
    "o_proj": "self_attn",
}
RANK, ALPHA = 4, 8


def tensor_name(layer: int, module: str, letter: str) -> str:
    part = MODULES.get(module, "mlp")
    return f"base_model.model.model.layers.{layer}.{part}.{module}.lora_{letter}.weight"


def adapter_tensors(model: ModelConfig, modules: list[str], seed: int) -> dict[str, Tensor]:
    """Matrices that change every logit by much."""
    generator = torch.Generator().manual_seed(seed)
    found: dict[str, Tensor] = {}
    for layer in range(model.layers):
        for module in modules:
            target = targets(model)[module]
            for letter, shape in (("A", (RANK, target.inputs)), ("B", (target.outputs, RANK))):
                found[tensor_name(layer, module, letter)] = 0.1 * torch.randn(
                    shape, generator=generator
                )
    return found


def write_adapter(folder: Path, tensors: dict[str, Tensor], **config: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "bias": "none"} | config
    (folder / CONFIG_FILE).write_text(json.dumps(settings))
    save_file(tensors, folder / TENSOR_FILE)
    return folder
