"""Layers of hybrid models: linear attention, state spaces, compressed latents.

What has no shape here is read as the nearest one that has; ``APPROXIMATIONS`` says how.
"""

from math import ceil

from servetwin.sim.catalogue.entry import shipped_json
from servetwin.sim.catalogue.hf_keys import NAMES, Keys
from servetwin.sim.catalogue.layers import Attention, LatentAttention, Mixer, Recurrence

APPROXIMATIONS: dict[str, str] = shipped_json("catalogue/hf_families.json")["approximations"]
"""How a type of model with parts of no shape here is read."""

_BLOCKS = {"M": "mamba", "E": "moe", "-": "mlp", "*": "attention"}


def linear_layers(keys: Keys, layers: int) -> set[int]:
    """Return the layers that keep a state in place of keys and values."""
    kinds = keys.items("layer_types", str)
    if kinds:
        return {layer for layer, kind in enumerate(kinds) if kind == "linear_attention"}
    if linear := keys.nested("linear_attn_config"):
        return {layer - 1 for layer in linear.items("kda_layers", int)}
    every = keys.find("full_attention_interval")
    return {layer for layer in range(layers) if every and (layer + 1) % every}


def linear_attention(keys: Keys, width: int) -> Recurrence:
    """Return gated delta attention: Qwen3-Next (2025), or that of Kimi Linear (2025).

    Counted are the projections of queries, keys, values, gates and output, and the convolution.
    """
    if linear := keys.nested("linear_attn_config"):
        heads, size = linear.count("num_heads"), linear.count("head_dim")
        kernel, inner = linear.count("short_conv_kernel_size"), heads * size
        return Recurrence(
            state_size=_elements(keys) * inner * size + 3 * inner * (kernel - 1),
            mixer_params=width * (6 * inner + heads) + 3 * inner * kernel,
        )
    size = keys.count("linear_key_head_dim")
    keyed = keys.count("linear_num_key_heads") * size
    heads, kernel = keys.count("linear_num_value_heads"), keys.count("linear_conv_kernel_dim")
    valued = heads * keys.count("linear_value_head_dim")
    convolved = 2 * keyed + valued
    return Recurrence(
        state_size=_elements(keys) * valued * size + convolved * (kernel - 1),
        mixer_params=width * (convolved + 2 * valued + 2 * heads) + convolved * kernel,
    )


def mamba(keys: Keys, width: int) -> Recurrence:
    """Count the projections in, x, dt and out, the convolution, A and D. Gu and Dao 2023."""
    inner, state, kernel = _inner(keys, width), keys.count("state_size"), keys.count("conv_kernel")
    automatic = keys.values.get("time_step_rank") == "auto"
    rank = ceil(width / 16) if automatic else keys.count("time_step_rank")
    per_channel = 2 * width + kernel + (rank + 2 * state) + rank + state + 1 + width
    return Recurrence(state_size=inner * state, mixer_params=inner * per_channel)


def mamba2(keys: Keys, width: int) -> Recurrence:
    """Count the projections in and out, the convolution, A and D per head. Dao and Gu 2024."""
    heads, kernel = keys.count("mamba_num_heads", "num_heads"), keys.count("conv_kernel")
    size = keys.find("mamba_head_dim")
    inner = heads * size if size else _inner(keys, width)
    state = keys.count("ssm_state_size", "state_size")
    convolved = inner + 2 * keys.count("n_groups") * state
    projected = inner + convolved + heads
    params = width * projected + convolved * kernel + 2 * heads + inner * width
    held = _elements(keys) * inner * state + convolved * (kernel - 1)
    return Recurrence(state_size=held, mixer_params=params)


def blocks(keys: Keys) -> list[tuple[str, str]]:
    """Return each mixer of Nemotron-H with the FFN behind it, empty where none follows."""
    kinds = keys.items("layers_block_type", str)
    kinds = kinds or [
        _BLOCKS.get(letter, letter) for letter in keys.text("hybrid_override_pattern")
    ]
    if not set(kinds) <= set(_BLOCKS.values()):
        raise keys.wrong("hybrid_override_pattern", f"of {' '.join(_BLOCKS)}")
    pairs: list[tuple[str, str]] = []
    for kind in kinds:
        if kind in ("mamba", "attention"):
            pairs.append((kind, ""))
        elif pairs and not pairs[-1][1]:
            pairs[-1] = (pairs[-1][0], kind)
        else:
            raise keys.wrong("hybrid_override_pattern", "one FFN behind each mixer at most")
    return pairs


def compressed_latent(keys: Keys, heads: int, layer: int) -> Mixer:
    """Return the attention of DeepSeek-V4: one key, which is the value, for so many tokens."""
    size, rope = keys.count("head_dim"), keys.count("qk_rope_head_dim")
    ratios = keys.items("compress_ratios", int)
    return LatentAttention(
        heads=heads, latent_dim=size - rope, rope_dim=rope, nope_dim=size - rope, value_dim=size,
        query_latent_dim=keys.find("q_lora_rank"), compression=ratios[layer] or max(ratios),
    )  # fmt: skip


def attention(
    keys: Keys, heads: int, head_dim: int, kv_heads: int, window: int | None
) -> Attention:
    """Return softmax attention, whose windows may have other heads than the layers that see all.

    Where values are of another size than keys (MiMo-V2), both have the mean.
    """
    if window is not None:
        kv_heads = keys.find("swa_num_key_value_heads") or kv_heads
    else:
        kv_heads = keys.find("num_global_key_value_heads") or kv_heads
        head_dim = keys.find("global_head_dim") or head_dim
    value_dim = keys.find("v_head_dim") or head_dim
    return Attention(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=(head_dim + value_dim) // 2,
        window_tokens=window,
        chunked=window is not None and keys.find(*NAMES["window"][:1]) is None,
        gated=keys.flag("attn_output_gate", False),
    )


def _elements(keys: Keys) -> int:
    """Return the elements of 2 bytes that one of a state takes."""
    names = ("mamba_ssm_dtype", "mamba_ssm_cache_dtype")
    return 2 if "float32" in map(keys.text, names) else 1


def _inner(keys: Keys, width: int) -> int:
    return keys.find(*NAMES["ffn"][:1], "d_inner") or width * keys.count("expand")
