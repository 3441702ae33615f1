"""Layers of hybrid models: linear attention, state spaces, compressed latents.

What has no shape here is read as the nearest one that has; ``APPROXIMATIONS`` says how.
"""

from math import ceil

from servetwin.sim.catalogue.layers import Attention, Dense, LatentAttention, Mixer, Recurrence
from servetwin.workloads.fields import MAX_COUNT
from servetwin.workloads.models.description import NAMES, Description
from servetwin.workloads.models.keys import Keys

_REPLACED = "replace_with_linear"


def recurrent_layers(model: Description) -> dict[int, Recurrence]:
    """Return the layers that keep a state in place of keys and values."""
    keys, width, layers = model.keys, model.width, model.layers
    if any(states := model.keeps_state()):
        grouped = keys.find(*NAMES["state_groups"]) is not None
        mixer = mamba2(model) if grouped else mamba(keys, width)
        return {layer: mixer for layer, keeps in enumerate(states) if keeps}
    if linear := keys.part("linear_attn_config"):
        kimi = _kimi_linear(linear, width, _elements(keys))
        return {layer - 1: kimi for layer in linear.items("kda_layers", int)}
    kinds, every = keys.items("layer_types", str), keys.find("full_attention_interval")
    if not kinds and every:
        kinds = ["linear_attention" if (n + 1) % every else "" for n in range(layers)]
    if "linear_attention" not in kinds:
        return {}
    delta = linear_attention(keys, width)
    return {layer: delta for layer, kind in enumerate(kinds) if kind == "linear_attention"}


def _kimi_linear(linear: Keys, width: int, elements: int) -> Recurrence:
    """Return the attention of Kimi Linear (2025), counted as ``linear_attention`` is."""
    heads, size = linear.count("num_heads"), linear.count("head_dim")
    kernel, inner = linear.count("short_conv_kernel_size"), heads * size
    return Recurrence(
        state_size=elements * inner * size + 3 * inner * (kernel - 1),
        mixer_params=width * (6 * inner + heads) + 3 * inner * kernel,
    )


def linear_attention(keys: Keys, width: int) -> Recurrence:
    """Return gated delta attention: Qwen3-Next (2025).

    Counted are the projections of queries, keys, values, gates and output, and the convolution.
    """
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
    inner = keys.find(*NAMES["ffn"][:1], "d_inner") or width * keys.count("expand")
    state, kernel = keys.count("state_size"), keys.count("conv_kernel")
    automatic = keys.values.get("time_step_rank") == "auto"
    rank = ceil(width / 16) if automatic else keys.count("time_step_rank")
    per_channel = 2 * width + kernel + (rank + 2 * state) + rank + state + 1 + width
    return Recurrence(state_size=inner * state, mixer_params=inner * per_channel)


def mamba2(model: Description) -> Recurrence:
    """Count the projections in and out, the convolution, A and D per head. Dao and Gu 2024."""
    sizes, width = model.state_sizes(), model.width
    inner, convolved, kernel = sizes.inner, sizes.convolved, sizes.kernel
    projected = inner + convolved + sizes.heads
    params = width * projected + convolved * kernel + 2 * sizes.heads + inner * width
    held = _elements(model.keys) * inner * sizes.state_dim + convolved * (kernel - 1)
    return Recurrence(state_size=held, mixer_params=params)


def searched_blocks(keys: Keys, width: int, matrices: int) -> list[tuple[Mixer, Dense]]:
    """Return the layers of DeciLM, whose blocks an architecture search left different.

    A block without attention widens the FFN before it; a product in place of attention or of an
    FFN, of d x d weights, counts as an FFN of as many.
    """
    heads = keys.count(*NAMES["heads"])
    layers: list[tuple[Mixer, int]] = []
    for place, entry in enumerate(keys.items("block_configs", dict)):
        block = Keys(entry, f"{keys.where}: block_configs[{place}]")
        mixer, ffn = block.part("attention"), block.part("ffn")
        if mixer is None or ffn is None:
            raise block.wrong("attention" if mixer is None else "ffn", "an object {...}")
        added = sum(width // matrices for part in (mixer, ffn) if part.flag(_REPLACED))
        if not (ffn.flag("no_op") or ffn.flag(_REPLACED)):
            added += _ffn_width(ffn, width)
        if not (mixer.flag("no_op") or mixer.flag(_REPLACED)):
            kv_heads = heads // mixer.count("n_heads_in_group", most=heads)
            shape = attention(keys, heads, width // heads, kv_heads, mixer.find("window_length"))
            layers.append((shape, added))
        elif layers:
            layers[-1] = (layers[-1][0], layers[-1][1] + added)
        else:
            raise block.wrong("attention", "attention in the first block")
    return [(mixer, Dense(width=size, matrices=matrices)) for mixer, size in layers]


def _ffn_width(ffn: Keys, width: int) -> int:
    """Return 2/3 of the width times ``ffn_mult``, rounded up to a multiple of 256."""
    factor = ffn.values.get("ffn_mult")
    if not isinstance(factor, int | float) or not 0 < factor < MAX_COUNT / width:
        raise ffn.wrong("ffn_mult", "a number above 0")
    return ceil(int(2 * factor * width / 3) / 256) * 256


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
        heads=heads, kv_heads=kv_heads, head_dim=(head_dim + value_dim) // 2, window_tokens=window,
        chunked=window is not None and keys.find(*NAMES["window"][:1]) is None,
        gated=keys.flag("attn_output_gate"),
    )  # fmt: skip


def _elements(keys: Keys) -> int:
    """Return the elements of 2 bytes that one of a state takes."""
    names = ("mamba_ssm_dtype", "mamba_ssm_cache_dtype")
    return 2 if "float32" in map(keys.text, names) else 1
