"""Hugging Face configs as tests read them."""

from servetwin.sim.catalogue.layers import Attention
from servetwin.sim.catalogue.model import ModelShape

LLAMA = {
    "vocab_size": 500,
    "hidden_size": 64,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "pad_token_id": 0,
}
WIDE_HEADS = {**LLAMA, "head_dim": 32}
QWEN_EXPERTS = {"moe_intermediate_size": 32, "num_experts": 6, "num_experts_per_tok": 2}
LATE_EXPERTS = {
    **LLAMA,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 2,
    "n_group": 2,
    "topk_group": 1,
}
DEEPSEEK = {
    **LATE_EXPERTS,
    "num_key_value_heads": 4,
    "kv_lora_rank": 16,
    "q_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
}


def windows(shape: ModelShape) -> list[tuple[int, int | None]]:
    """(layers, window) of each group with attention."""
    return [
        (group.count, group.mixer.window_tokens)
        for group in shape.layers
        if isinstance(group.mixer, Attention)
    ]
