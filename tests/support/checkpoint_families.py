"""Families of models by transformers' own classes, written as checkpoints."""

import contextlib
import io
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from servetwin.engine.checkpoint.find_model import FoundModel
from servetwin.policies.config import PolicyConfig
from tests.support.engine_oracle import NEW_TOKENS, PROMPTS
from tests.support.text_tokenizers import byte_level, write_tokenizer

PROMPT_IDS = [[token % 512 for token in prompt] for prompt in PROMPTS]

SIZES: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 1,
    "tie_word_embeddings": False,
}
GATED = SIZES | {"intermediate_size": 96, "num_key_value_heads": 2, "head_dim": 16}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
GEMMA = {"query_pre_attn_scalar": 20, "sliding_window": 16}
WITHOUT = ("num_attention_heads", "max_position_embeddings")
MAMBA = {key: size for key, size in SIZES.items() if key not in WITHOUT}
STATES = {
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_d_state": 24,
    "mamba_n_groups": 2,
}
LATENT = SIZES | {
    "intermediate_size": 96,
    "moe_intermediate_size": 32,
    "num_key_value_heads": 4,
    "q_lora_rank": 24,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 2,
    "topk_group": 1,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "Llama": GATED,
    "Mistral": GATED | {"sliding_window": 16},
    "Mixtral": GATED | EXPERTS,
    "Qwen2": GATED,
    "Qwen3": GATED,
    "Qwen3Moe": GATED | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48},
    "DeepseekV2": LATENT | {"topk_method": "greedy"},
    "DeepseekV3": LATENT,
    "Llama/dynamic": GATED | {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}},
    "Granite": GATED
    | {
        "attention_multiplier": 0.2,
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.4,
        "logits_scaling": 2.0,
        "attention_bias": True,
    },
    "SmolLM3": GATED | {"no_rope_layer_interval": 2},
    "Olmo2": GATED,
    "Phi3": GATED | {"sliding_window": 24},
    "Phi3/longrope": GATED
    | {
        "original_max_position_embeddings": 256,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 1e4,
            "short_factor": [1.0, 1.1, 1.3, 1.6, 2.0, 2.5, 3.1, 3.8],
            "long_factor": [4.0] * 8,
            "original_max_position_embeddings": 256,
        },
    },
    "Glm": GATED | {"attention_bias": True},
    "Glm4": GATED
    | {
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e4,
            "partial_rotary_factor": 0.25,
        }
    },
    "Cohere": GATED | {"logit_scale": 0.3},
    "Cohere2": GATED | {"logit_scale": 0.3, "sliding_window": 16, "sliding_window_pattern": 2},
    "Ernie4_5": GATED | {"use_bias": True},
    "Gemma": GATED | {"hidden_act": "gelu_pytorch_tanh"},
    "Gemma2": GATED | GEMMA | {"attn_logit_softcapping": 3.0, "final_logit_softcapping": 4.0},
    "Gemma3Text": GATED | GEMMA | {"sliding_window_pattern": 2},
    "Qwen2Moe": GATED
    | {
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 48,
        "shared_expert_intermediate_size": 80,
    },
    "GptOss": GATED | EXPERTS | {"sliding_window": 16},
    "GPT2": SIZES,
    "OPT": SIZES | {"ffn_dim": 96, "word_embed_proj_dim": 64},
    "GPTNeoX": SIZES | {"intermediate_size": 96},
    "GPTNeoX/serial": SIZES | {"intermediate_size": 96, "use_parallel_residual": False},
    "Falcon": SIZES | {"bias": True},
    "Falcon/alibi": SIZES
    | {
        "alibi": True,
        "parallel_attn": False,
        "multi_query": False,
        "attn_implementation": "sdpa",  # the eager one adds the slopes twice
    },
    "Falcon/new": SIZES | {"new_decoder_architecture": True, "num_kv_heads": 2},
    "Mamba2": MAMBA | {"num_heads": 8, "head_dim": 16, "state_size": 24, "n_groups": 2},
    "Mamba2/biased": MAMBA
    | {
        "num_heads": 4,
        "head_dim": 32,
        "state_size": 16,
        "n_groups": 1,
        "use_bias": True,
        "use_conv_bias": False,
        "conv_kernel": 3,
    },
    "Bamba": GATED | STATES | {"attn_layer_indices": [1], "mamba_conv_bias": True},
    "GraniteMoeHybrid": GATED
    | STATES
    | {
        "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"],
        "shared_intermediate_size": 96,
        "num_local_experts": 0,
        "attention_multiplier": 0.2,
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.4,
        "logits_scaling": 2.0,
        "mamba_proj_bias": True,
    },
    "GraniteMoeHybrid/rope": GATED
    | STATES
    | {
        "layer_types": ["full_attention", "linear_attention", "linear_attention", "full_attention"],
        "shared_intermediate_size": 96,
        "num_local_experts": 0,
        "position_embedding_type": "rope",
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.4,
    },
    "Llama4Text": GATED
    | EXPERTS
    | {
        "intermediate_size_mlp": 80,
        "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 2,
        "no_rope_layer_interval": 2,
    },
    "NemotronH": {key: size for key, size in GATED.items() if key != "num_hidden_layers"}
    | {
        "layers_block_type": ["linear_attention", "mlp", "full_attention", "moe", "full_attention"],
        "mamba_num_heads": 8,
        "mamba_head_dim": 16,
        "ssm_state_size": 24,
        "n_groups": 2,
        "n_routed_experts": 8,
        "n_group": 2,
        "moe_intermediate_size": 48,
        "moe_shared_expert_intermediate_size": 80,
    },
}
FAMILIES["GraniteMoeHybrid/experts"] = FAMILIES["GraniteMoeHybrid"] | EXPERTS
"""By the class of transformers, and what sets a variant apart."""


def write_family(folder: Path, family: str, dtype: torch.dtype = torch.float32) -> Any:
    """Write a small model of a family with random weights; return transformers' model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers
    name = family.partition("/")[0]
    config = getattr(transformers, f"{name}Config")(
        **{"attn_implementation": "eager"} | FAMILIES[family]
    )
    ending = "LMHeadModel" if name == "GPT2" else "ForCausalLM"
    model = getattr(transformers, f"{name.removesuffix('Text')}{ending}")(config).eval()
    generator = torch.Generator().manual_seed(3)
    for weight, parameter in model.named_parameters():
        is_norm = "norm" in weight or "ln_" in weight
        one = is_norm and weight.endswith("weight") and not family.startswith("Gemma")
        deviation = 0.05 if weight.endswith("bias") else 0.2
        mean = -3.0 if weight.endswith("A_log") else float(one)  # states last for a prompt
        parameter.data.normal_(mean, deviation, generator=generator)
    model.to(dtype)
    with contextlib.redirect_stderr(io.StringIO()):  # a progress bar
        model.save_pretrained(folder)
    write_tokenizer(folder, byte_level())
    return model


@torch.inference_mode()
def greedy(model: Any) -> tuple[list[list[int]], torch.Tensor]:
    """Return tokens and logits with everything recomputed for each token."""
    ids, logits = torch.tensor(PROMPTS) % 512, []
    for _ in range(NEW_TOKENS):
        logits.append(model(ids, use_cache=False).logits[:, -1].float())
        ids = torch.cat([ids, logits[-1].argmax(-1, keepdim=True)], dim=1)
    return ids[:, len(PROMPTS[0]) :].tolist(), torch.stack(logits, 1)


def policies_of(found: FoundModel, **settings: Any) -> PolicyConfig:
    return replace(found.policies(), kv_tokens=1024, max_model_len=128, **settings)
