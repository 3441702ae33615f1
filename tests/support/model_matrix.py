"""One model of each architecture, small and sure of what it says (untied, random weights)."""

from dataclasses import replace

from engine.models.model_config import ModelConfig
from engine.models.rope_scaling import RopeScaling
from tests.support.engine_oracle import CONFIG

WINDOW = 24
"""Shorter than the prompts: it hides tokens from the first step on."""

MODELS: dict[str, ModelConfig] = {
    "mha": replace(CONFIG, kv_heads=4),
    "mqa": replace(CONFIG, kv_heads=1),
    "wide-heads": replace(CONFIG, head_dim=48),
    "all-biases": replace(CONFIG, qkv_bias=True, attention_out_bias=True, ffn_bias=True),
    "qwen2": replace(CONFIG, qkv_bias=True),
    "qwen2-window": replace(CONFIG, qkv_bias=True, windows=(None, WINDOW)),
    "qwen3": replace(CONFIG, qk_norm=True, head_dim=48),
    "mistral": replace(CONFIG, windows=(WINDOW, WINDOW)),
    "llama3-rope": replace(CONFIG, rope_scaling=RopeScaling("llama3", 4.0, 32)),
    "linear-rope": replace(CONFIG, rope_scaling=RopeScaling("linear", 4.0)),
    "yarn-rope": replace(CONFIG, rope_scaling=RopeScaling("yarn", 4.0, 32)),
}
"""By what sets each apart."""
