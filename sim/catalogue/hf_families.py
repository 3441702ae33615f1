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


PLAIN = Family(matrices=2)

_FACTS = json.loads(
    resources.files("servetwin.sim").joinpath("catalogue/hf_families.json").read_text("utf-8")
)
FAMILIES: dict[str, Family] = {name: Family(**said) for name, said in _FACTS["families"].items()}
"""By ``model_type``, without the ending ``_text`` of the text part of a multimodal model."""

NAMES: dict[str, list[str]] = _FACTS["keys"]
"""The names of a key in the configs of different classes, the usual one first."""

NESTED_DEFAULTS: dict[str, dict[str, int]] = _FACTS["nested_defaults"]
"""The keys that a text part may leave out, because they are the defaults of its class."""
