"""What a Hugging Face config leaves to the class of the model, by ``model_type``."""

import json
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True, slots=True)
class Family:
    """What the class of a model decides where its config says nothing.

    ``matrices`` of the FFN: 3 gated, 2 plain. ``tied``: the head is the embedding. In a model with
    a window, each ``full_every``-th layer sees all tokens; ``windowed``: the window is used unless
    the config says otherwise. ``more_positions``: learned position embeddings beyond the context;
    None: none are learned. ``shared_experts`` run beside the chosen ones.
    """

    matrices: int = 3
    tied: bool = False
    full_every: int | None = None
    windowed: bool = True
    more_positions: int | None = None
    shared_experts: int = 0


GATED, GATED_TIED = Family(), Family(tied=True)
PLAIN, PLAIN_TIED = Family(matrices=2), Family(matrices=2, tied=True)
QWEN = Family(windowed=False)

FAMILIES = {
    **dict.fromkeys(("llama", "mistral", "mixtral", "phi3", "phimoe", "deepseek_v2"), GATED),
    **dict.fromkeys(("deepseek_v3", "kimi_k2", "glm4", "glm4_moe", "granite", "stablelm"), GATED),
    **dict.fromkeys(("olmo", "olmo2", "olmoe", "seed_oss"), GATED),
    **dict.fromkeys(("gemma", "cohere"), GATED_TIED),
    **dict.fromkeys(("qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "qwen3", "qwen3_moe"), QWEN),
    **dict.fromkeys(("qwen3_vl", "qwen3_vl_moe"), QWEN),
    "gemma2": Family(tied=True, full_every=2),
    "gemma3": Family(tied=True, full_every=6),
    "cohere2": Family(tied=True, full_every=4),
    "gpt_oss": Family(full_every=2),
    "llama4": Family(full_every=4, shared_experts=1),
    "smollm3": Family(tied=True, windowed=False),
    **dict.fromkeys(("gpt_neox", "gptj", "codegen", "phi", "nemotron"), PLAIN),
    **dict.fromkeys(("falcon", "bloom", "mpt", "starcoder2"), PLAIN_TIED),
    **dict.fromkeys(("gpt2", "gpt_bigcode"), Family(2, tied=True, more_positions=0)),
    "opt": Family(2, tied=True, more_positions=2),
    **dict.fromkeys(("mamba", "falcon_mamba"), GATED_TIED),
    "mamba2": GATED,
}
"""By ``model_type``, without the ending ``_text`` of the text part of a multimodal model."""

_DEFAULTS = resources.files("sim").joinpath("shapes/hf_defaults.json")
NESTED_DEFAULTS: dict[str, dict[str, int]] = json.loads(_DEFAULTS.read_text("utf-8"))
"""The keys that a text part may leave out, because they are the defaults of its class."""
