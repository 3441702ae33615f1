"""What an independent implementation (transformers) says after four prompts, in float32."""

import warnings
from dataclasses import dataclass, replace
from typing import Any

import torch

from engine.models.model_config import model_preset
from engine.models.weights import Weights, random_weights
from tests.support.effort import FULL

# A tied head or the usual deviation of 0.02 makes the model echo itself, and equality would
# prove nothing.
CONFIG = replace(model_preset("tiny"), tie_embeddings=False, rope_theta=20_000.0, norm_eps=1e-4)
STD = 0.06
PROMPT_TOKENS, NEW_TOKENS, SHARED_TOKENS = 40, 64 if FULL else 32, 32


def make_prompts() -> list[list[int]]:
    """Four random prompts; the first two begin with the same two blocks."""
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(CONFIG.vocab_size, (4, PROMPT_TOKENS), generator=generator)
    ids[1, :SHARED_TOKENS] = ids[0, :SHARED_TOKENS]
    return [[int(token) for token in row] for row in ids]


PROMPTS = make_prompts()


def transformers_model(weights: Weights) -> torch.nn.Module:
    """The independent implementation, in float32 on the CPU, with the same weights."""
    options: dict[str, Any] = {
        "vocab_size": CONFIG.vocab_size,
        "hidden_size": CONFIG.hidden_size,
        "intermediate_size": CONFIG.ffn_size,
        "num_hidden_layers": CONFIG.layers,
        "num_attention_heads": CONFIG.heads,
        "num_key_value_heads": CONFIG.kv_heads,
        "head_dim": CONFIG.head_dim,
        "rms_norm_eps": CONFIG.norm_eps,
        "rope_theta": CONFIG.rope_theta,
        "tie_word_embeddings": False,
        "attn_implementation": "eager",
    }
    state = {
        "model.embed_tokens.weight": weights.embedding,
        "model.norm.weight": weights.final_norm,
        "lm_head.weight": weights.head,
    }
    attention, kv = CONFIG.heads * CONFIG.head_dim, CONFIG.kv_heads * CONFIG.head_dim
    for index, layer in enumerate(weights.layers):
        query, key, value = layer.qkv.split_with_sizes([attention, kv, kv])
        gate, up = layer.gate_up.chunk(2)
        names = {
            "input_layernorm": layer.attention_norm,
            "self_attn.q_proj": query,
            "self_attn.k_proj": key,
            "self_attn.v_proj": value,
            "self_attn.o_proj": layer.attention_out,
            "post_attention_layernorm": layer.ffn_norm,
            "mlp.gate_proj": gate,
            "mlp.up_proj": up,
            "mlp.down_proj": layer.down,
        }
        state |= {f"model.layers.{index}.{name}.weight": part for name, part in names.items()}
    with warnings.catch_warnings():  # imported where it is asked: the import takes seconds
        warnings.simplefilter("ignore")
        from transformers import LlamaConfig, LlamaForCausalLM
    model: torch.nn.Module = LlamaForCausalLM(LlamaConfig(**options))
    model.eval()
    model.load_state_dict({name: tensor.float().cpu() for name, tensor in state.items()})
    return model


@dataclass(frozen=True)
class Oracle:
    tokens: list[list[int]]
    logits: torch.Tensor
    """[prompt, new token, vocabulary]."""


@torch.inference_mode()
def ask_transformers(weights: Weights) -> Oracle:
    """Greedy tokens with everything recomputed for each."""
    model, ids, logits = transformers_model(weights), torch.tensor(PROMPTS), []
    for _ in range(NEW_TOKENS):
        logits.append(model(ids, use_cache=False).logits[:, -1])
        ids = torch.cat([ids, logits[-1].argmax(-1, keepdim=True)], dim=1)
    return Oracle(ids[:, PROMPT_TOKENS:].tolist(), torch.stack(logits, 1))


def draw_weights(device: str = "cpu") -> Weights:
    return random_weights(CONFIG, seed=0, std=STD, dtype=torch.float32, device=torch.device(device))
