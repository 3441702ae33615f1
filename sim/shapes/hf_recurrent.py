"""The layers of Mamba and Mamba-2 models, from a Hugging Face config."""

from math import ceil

from sim.shapes.feed_forward import Dense
from sim.shapes.hf_keys import Keys
from sim.shapes.mixers import Recurrence
from sim.shapes.model import LayerGroup

RECURRENT = frozenset({"mamba", "falcon_mamba", "mamba2"})
_NO_FFN = Dense(width=0, matrices=0)


def recurrent_layers(keys: Keys, model_type: str, width: int, layers: int) -> LayerGroup:
    """All layers of a model of one of the ``RECURRENT`` types; they are alike, without FFN."""
    mixer = _mamba2(keys, width) if model_type == "mamba2" else _mamba(keys, width)
    return LayerGroup(count=layers, mixer=mixer, ffn=_NO_FFN)


def _mamba(keys: Keys, width: int) -> Recurrence:
    """Projections in, x, dt and out, the convolution, A and D. Gu and Dao 2023."""
    inner, state, kernel = _inner(keys, width), keys.count("state_size"), keys.count("conv_kernel")
    automatic = keys.values.get("time_step_rank") == "auto"
    rank = ceil(width / 16) if automatic else keys.count("time_step_rank")
    per_channel = 2 * width + kernel + (rank + 2 * state) + rank + state + 1 + width
    return Recurrence(state_size=inner * state, mixer_params=inner * per_channel)


def _mamba2(keys: Keys, width: int) -> Recurrence:
    """Projections in and out, the convolution, A and D per head. Dao and Gu 2024."""
    inner, state, kernel = _inner(keys, width), keys.count("state_size"), keys.count("conv_kernel")
    heads = keys.count("num_heads")
    convolved = inner + 2 * keys.count("n_groups") * state
    projected = inner + convolved + heads
    params = width * projected + convolved * kernel + 2 * heads + inner * width
    return Recurrence(state_size=inner * state, mixer_params=params)


def _inner(keys: Keys, width: int) -> int:
    return keys.find("intermediate_size", "d_inner") or width * keys.count("expand")
