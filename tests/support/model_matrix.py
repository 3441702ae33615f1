"""One model of each architecture, small and sure of what it says (untied, random weights)."""

from dataclasses import replace

from servetwin.engine.models.model_config import ExpertConfig, LatentConfig, ModelConfig
from servetwin.engine.models.rope_scaling import RopeScaling, yarn_magnitude
from tests.support.engine_oracle import CONFIG

WINDOW = 24
"""Shorter than the prompts: it hides tokens from the first step on."""

LATENT = replace(CONFIG, kv_heads=1, head_dim=36, latent=LatentConfig(24, 16, 20, query_rank=28))
GROUPED = ExpertConfig(
    8, 3, 64, shared_size=128, normalise=False, scale=1.5, groups=4, top_groups=2
)

MODELS: dict[str, ModelConfig] = {
    "mha": replace(CONFIG, kv_heads=4),
    "mqa": replace(CONFIG, kv_heads=1),
    "wide-heads": replace(CONFIG, head_dim=48, rope_theta=15_000.0),
    "all-biases": replace(CONFIG, qkv_bias=True, attention_out_bias=True, ffn_bias=True),
    "qwen2": replace(CONFIG, qkv_bias=True),
    "qwen2-window": replace(CONFIG, qkv_bias=True, windows=(None, WINDOW)),
    "qwen3": replace(CONFIG, qk_norm=True, head_dim=48),
    "mistral": replace(CONFIG, windows=(WINDOW, WINDOW)),
    "llama3-rope": replace(CONFIG, rope_scaling=RopeScaling("llama3", 4.0, 32)),
    "linear-rope": replace(CONFIG, rope_scaling=RopeScaling("linear", 4.0), rope_theta=30_000.0),
    "yarn-rope": replace(CONFIG, rope_scaling=RopeScaling("yarn", 4.0, 32)),
    "mixtral": replace(CONFIG, experts=ExpertConfig(4, 2, 192), rope_theta=30_000.0),
    "qwen3-moe": replace(
        CONFIG, qk_norm=True, experts=ExpertConfig(8, 3, 96, dense_layers=(0,), normalise=False)
    ),
    "mla": replace(LATENT, latent=LatentConfig(24, 16, 20)),
    "deepseek-v2": replace(LATENT, experts=GROUPED),
    "deepseek-v3": replace(
        LATENT,
        rope_scaling=RopeScaling(
            "yarn", 4.0, 32, rotary_factor=1.0, score_factor=yarn_magnitude(4.0) ** 2
        ),
        experts=replace(
            GROUPED,
            scoring="sigmoid",
            choice_bias=True,
            normalise=True,
            group_scorers=2,
            dense_layers=(0,),
        ),
    ),
}
"""Models of folders in Hugging Face layout, by what sets each apart; ``rope_theta`` is such that no
two tokens are nearly as likely.
"""

SHARING: dict[str, ModelConfig] = {
    "shared-weights": replace(CONFIG, layers=4, weight_sharing=2),
    "shared-keys": replace(CONFIG, layers=4, kv_sharing=2, rope_theta=30_000.0),
    "shared-keys-qwen3": replace(CONFIG, layers=4, kv_sharing=4, qk_norm=True),
}
"""Models of which no such folder knows."""
ALL_MODELS = MODELS | SHARING
