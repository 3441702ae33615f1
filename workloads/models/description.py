"""What a Hugging Face ``config.json`` says of a decoder.

The shapes of the simulator and the models of the engine both come from here, so neither knows a
model that the other does not. Most configs say everything by their keys, under names that hardly
differ; ``families.json`` has the rest.

``NAMES``: the names of a key in the configs of different classes, the usual one first.
``NESTED_DEFAULTS``: the keys that a text part may leave out, because they are the defaults of its
class. ``APPROXIMATIONS``: how the simulator reads a type of model with parts of no shape there.
``_BLOCKS``: what the blocks of Nemotron-H are, by letter and by name.
``NOT_COMPUTED``: types of models that the engine does not compute, by what it lacks. ``FAMILIES``:
the families by ``model_type``, without the ending ``_text`` of a multimodal model's part.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

from servetwin.workloads.fields import MAX_COUNT
from servetwin.workloads.models.keys import Keys
from servetwin.workloads.program.package import shipped_json

_FACTS: dict[str, Any] = shipped_json("workloads/models/families.json")
NAMES: dict[str, list[str]] = _FACTS["keys"]
NESTED_DEFAULTS: dict[str, dict[str, int]] = _FACTS["nested_defaults"]
APPROXIMATIONS: dict[str, str] = _FACTS["approximations"]
NOT_COMPUTED: dict[str, list[str]] = _FACTS["not_computed"]

_LOCAL: dict[str, bool] = _FACTS["layers_with_window"]
_MAX_EXPERTS = 4_096
_BLOCKS: dict[str, str] = _FACTS["blocks"]


@dataclass(frozen=True, slots=True)
class Family:
    """The facts that the class of a model decides where its config is silent.

    ``matrices`` of the FFN: 3 gated, 2 plain, 0 none. ``more_positions``: learned position
    embeddings beyond the context; None: none are learned. ``defaults`` are the values of absent
    keys. ``engine``: how the bundled engine computes the family; None: it does not.
    """

    matrices: int = 3
    more_positions: int | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    engine: Mapping[str, Any] | None = None


FAMILIES: dict[str, Family] = {
    name: Family(**(_FACTS["families"][facts["like"]] if "like" in facts else facts))
    for name, facts in _FACTS["families"].items()
}
_BY_CLASS = {name.replace("_", "").replace("-", ""): name for name in FAMILIES}


class ExpertSizes(NamedTuple):
    """The experts of a layer, and the network beside them that every token uses (0: none)."""

    experts: int
    top_k: int
    width: int
    shared_width: int


class LatentSizes(NamedTuple):
    """The sizes of multi-head latent attention; queries may come from a latent as well."""

    latent_dim: int
    rope_dim: int
    value_dim: int
    nope_dim: int
    query_latent_dim: int | None


class StateSizes(NamedTuple):
    """The sizes of Mamba 2: a head has ``head_dim`` x ``state_dim`` numbers per sequence, and the
    heads of each of ``groups`` share what writes and reads them, behind a convolution of ``kernel``
    rows.
    """

    heads: int
    head_dim: int
    groups: int
    state_dim: int
    kernel: int

    @property
    def inner(self) -> int:
        """The width of all heads."""
        return self.heads * self.head_dim

    @property
    def convolved(self) -> int:
        """The width of what goes through the convolution."""
        return self.inner + 2 * self.groups * self.state_dim


def _counted(name: str, most: int = MAX_COUNT) -> Any:
    """Return the property of a model that is one of its keys."""
    return property(lambda model: model.keys.count(*NAMES[name], most=most))


@dataclass(frozen=True, slots=True)
class Description:
    """A decoder by the keys of its text part, absent ones filled in.

    Everything raises the error of the keys, naming the one that is missing or impossible.
    """

    keys: Keys
    model_type: str
    family: Family

    width = _counted("width")
    heads = _counted("heads")

    @classmethod
    def of(cls, config: Keys) -> "Description":
        """Return what a config says; a model of no known family is read by its keys alone."""
        keys = _text_part(config)
        model_type = _model_type(keys)
        family = FAMILIES.get(model_type) or _by_its_keys(keys)
        return cls(keys.with_defaults(family.defaults), model_type, family)

    @property
    def layers(self) -> int:
        """The layers: a mixer of Nemotron-H and the network behind it are one."""
        return len(self.blocks()) or self.keys.count(*NAMES["layers"], most=10_000)

    def blocks(self) -> list[tuple[str, str]]:
        """Return each mixer of Nemotron-H with the FFN behind it, empty where none follows."""
        keys, key = self.keys, "hybrid_override_pattern"
        if self.model_type != "nemotron_h":
            return []
        kinds = keys.items("layers_block_type", str) or list(keys.text(key))
        if not set(kinds) <= set(_BLOCKS):
            raise keys.wrong(keys.name_of("layers_block_type", key), f"of {' '.join(_BLOCKS)}")
        pairs: list[tuple[str, str]] = []
        for kind in map(_BLOCKS.__getitem__, kinds):
            if kind in ("mamba", "attention"):
                pairs.append((kind, ""))
            elif pairs and not pairs[-1][1]:
                pairs[-1] = (pairs[-1][0], kind)
            else:
                raise keys.wrong(key, "one FFN behind each mixer at most")
        return pairs

    def mixer_places(self) -> tuple[int, ...]:
        """Return where among the blocks each mixer stands, and their number; empty without."""
        sizes = (1 + bool(ffn) for _, ffn in self.blocks())
        places = tuple(accumulate(sizes, initial=0))
        return places if len(places) > 1 else ()

    @property
    def kv_heads(self) -> int:
        """The KV heads: one for multi-query, which Falcon's newer decoder overrules."""
        keys = self.keys
        if keys.flag("multi_query") and not keys.flag("new_decoder_architecture"):
            return 1
        if keys.find(*NAMES["kv_heads"]) is None:
            return keys.count(*NAMES["heads"])
        self._divided(self.heads, NAMES["kv_heads"])
        return keys.count(*NAMES["kv_heads"])

    @property
    def head_dim(self) -> int:
        """The width of a head."""
        stated = self.keys.find("head_dim", "attention_head_dim")
        return stated or self._divided(self.width, NAMES["heads"])

    @property
    def ffn_width(self) -> int:
        """The width of an FFN; of a plain one, by default four times that of the model."""
        if self.family.matrices == 2:
            return self.keys.find(*NAMES["ffn"]) or 4 * self.width
        return self.keys.count(*NAMES["ffn"])

    @property
    def dense_width(self) -> int:
        """The width of the FFN of a layer without experts; 0: it has none."""
        if not self.family.matrices:
            return 0
        return self.keys.find(*NAMES["dense"]) or self.ffn_width

    def windows(self) -> list[int | None]:
        """Return the window of each layer in tokens; None where it sees all."""
        local = self._local_layers()
        window = self.keys.find(*NAMES["window"], least=0)
        if not (window and self.keys.flag("use_sliding_window", True)):
            return [None] * len(local)
        return [window if is_local else None for is_local in local]

    def latent(self) -> LatentSizes | None:
        """Return the sizes of latent attention; None where keys and values have heads."""
        keys = self.keys
        rank = keys.find("kv_lora_rank")
        if rank is None:
            return None
        return LatentSizes(
            rank,
            keys.count("qk_rope_head_dim", least=0),
            keys.count("v_head_dim"),
            keys.count("qk_nope_head_dim"),
            keys.find("q_lora_rank"),
        )

    def keeps_state(self) -> list[bool]:
        """Return for each layer whether it keeps a Mamba state in place of keys and values."""
        keys, layers = self.keys, self.layers
        if blocks := self.blocks():
            return [mixer == "mamba" for mixer, _ in blocks]
        if keys.find(*NAMES["state_kernel"]) is None:
            return [False] * layers
        if kinds := keys.items("layer_types", str):
            return [kind in ("mamba", "linear_attention") for kind in kinds]
        attending = set(keys.items("attn_layer_indices", int))
        if not attending <= set(range(layers)):
            raise keys.wrong("attn_layer_indices", f"layers of 0 .. {layers - 1}")
        return [layer not in attending for layer in range(layers)]

    def state_sizes(self) -> StateSizes:
        """Return the sizes of the layers that keep a state of Mamba 2."""
        keys, names = self.keys, NAMES["state_heads"]
        inner = self.width * (keys.find("expand", "mamba_expand") or 2)
        return StateSizes(
            keys.count(*names),
            keys.find(*NAMES["state_head_dim"]) or self._divided(inner, names),
            keys.count(*NAMES["state_groups"]),
            keys.count(*NAMES["state_dim"]),
            keys.count(*NAMES["state_kernel"]),
        )

    def has_experts(self, layer: int) -> bool:
        """Return whether the FFN of a layer is divided into experts."""
        keys = self.keys
        if blocks := self.blocks():
            return blocks[layer][1] == "moe"
        every = keys.find("decoder_sparse_step", "interleave_moe_layer_step") or 1
        marks, chosen = keys.values.get("moe_layer_freq"), keys.get("moe_layers")
        if isinstance(marks, list) and layer < len(marks):
            return bool(marks[layer])
        return (
            bool(keys.find(*NAMES["experts"], least=0))
            and layer >= (keys.find("first_k_dense_replace", least=0) or 0)
            and layer not in keys.items("mlp_only_layers", int)
            and (chosen is None or layer in keys.items("moe_layers", int))
            and (layer + 1) % every == 0
            and layer % (keys.find("moe_layer_freq") or 1) == 0
        )

    def experts(self) -> ExpertSizes:
        """Return the sizes of the experts of the layers that have some."""
        keys = self.keys
        width = keys.find("moe_intermediate_size") or self.ffn_width
        shared = keys.find(*NAMES["shared_width"], least=0)
        if shared is None:
            shared = width * (keys.find(*NAMES["shared"], least=0) or 0)
        experts = keys.count(*NAMES["experts"], most=_MAX_EXPERTS)
        return ExpertSizes(experts, keys.count(*NAMES["top_k"]), width, shared)

    def _local_layers(self) -> list[bool]:
        """Return for each layer whether it has the window, if there is one."""
        keys, layers = self.keys, self.layers
        kinds = keys.items("layer_types", str)
        if kinds:
            if len(kinds) != layers or not set(kinds) <= _LOCAL.keys():
                raise keys.wrong("layer_types", f"a list of {layers} of {', '.join(_LOCAL)}")
            return [_LOCAL[kind] for kind in kinds]
        pattern = keys.items("hybrid_layer_pattern", int)
        if len(pattern) == layers:
            return [kind == 1 for kind in pattern]
        if every := keys.find(*NAMES["pattern"]):
            return [(layer + 1) % every != 0 for layer in range(layers)]
        first = keys.find("max_window_layers", least=0) or 0
        return [layer >= first for layer in range(layers)]

    def _divided(self, whole: int, names: list[str]) -> int:
        """Return ``whole`` over a count that must divide it."""
        if whole % self.keys.count(*names):
            raise self.keys.wrong(self.keys.name_of(*names), f"a divisor of {whole}")
        return whole // self.keys.count(*names)


def type_of_class(name: str) -> str | None:
    """Return the type of model of a class such as ``LlamaForCausalLM``; None: of none known."""
    stem = name.removesuffix("ForCausalLM").removesuffix("LMHeadModel")
    return None if stem == name else _BY_CLASS.get(stem.replace("_", "").lower())


def _text_part(keys: Keys) -> Keys:
    """Return the keys of the text model inside a multimodal one, missing ones filled in."""
    for name in ("text_config", "llm_config", "language_config"):
        inner = keys.part(name)
        if inner is not None:
            left_out = dict(NESTED_DEFAULTS.get(_model_type(inner), {}))
            for outer in ("tie_word_embeddings", "quantization_config", "quantization"):
                if keys.values.get(outer) is not None:
                    left_out[outer] = keys.values[outer]
            return inner.with_defaults(left_out)
    return keys


def _model_type(keys: Keys) -> str:
    """Return the type by ``model_type``, or else by the class in ``architectures``."""
    if stated := keys.text("model_type"):
        return stated.removesuffix("_text")
    classes = keys.items("architectures", str)
    return (type_of_class(classes[0]) or classes[0]) if classes else ""


def _by_its_keys(keys: Keys) -> Family:
    """Return the family of an unknown model: plain where its activation is one of plain FFNs."""
    activation = keys.text("hidden_act") or keys.text("activation_function")
    return Family(matrices=2 if activation.startswith(("gelu", "relu")) else 3)
