"""The same model for the simulator, which knows its shape, and the engine, which computes it."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

from servetwin.engine.drafting.drafts import Drafts
from servetwin.engine.models.model_config import ExpertConfig, LatentConfig, ModelConfig
from servetwin.sim.catalogue.layers import (
    Attention,
    Dense,
    Experts,
    FeedForward,
    LatentAttention,
    Mixer,
)
from servetwin.sim.catalogue.model import LayerGroup, ModelShape
from servetwin.sim.step_times.acceptance import Chain, Measured, Tree
from servetwin.sim.step_times.roofline.deployment import Drafting
from servetwin.sim.techniques.setup import Setup
from servetwin.workloads.errors import PolicyError

Value = TypeVar("Value")


def shape_of(model: ModelConfig) -> ModelShape:
    """Return the shape of an engine's model, whose equal neighbouring layers are a group."""
    groups: list[LayerGroup] = []
    for layer in range(model.layers):
        group = LayerGroup(count=1, mixer=_mixer(model, layer), ffn=_ffn(model, layer))
        if groups and groups[-1] == group.model_copy(update={"count": groups[-1].count}):
            group = group.model_copy(update={"count": groups.pop().count + 1})
        groups.append(group)
    return ModelShape(
        name=model.name,
        width=model.hidden_size,
        vocabulary=model.vocab_size,
        layers=tuple(groups),
        tied_embeddings=model.tie_embeddings,
        max_model_len=model.max_model_len,
        source="the bundled engine",
    )


def _mixer(model: ModelConfig, layer: int) -> Mixer:
    latent = model.latent
    if latent is None:
        return Attention(
            heads=model.heads,
            kv_heads=model.kv_heads,
            head_dim=model.head_dim,
            window_tokens=model.window(layer),
            sink_tokens=model.sink_tokens,
            kv_sharing=model.kv_sharing,
        )
    return LatentAttention(
        heads=model.heads,
        latent_dim=latent.rank,
        rope_dim=latent.rope_dim,
        nope_dim=model.head_dim - latent.rope_dim,
        value_dim=latent.value_dim,
        query_latent_dim=latent.query_rank,
    )


def _ffn(model: ModelConfig, layer: int) -> FeedForward:
    experts = model.experts
    if experts is None or not model.has_experts(layer):
        return Dense(width=model.ffn_size, matrices=3 if model.gated else 2)
    return Experts(
        experts=experts.experts,
        top_k=experts.top_k,
        width=experts.ffn_size,
        shared_width=experts.shared_size,
    )


def model_of(shape: ModelShape, like: ModelConfig) -> ModelConfig:
    """Return the engine's model of a shape; what a shape leaves open is as in ``like``.

    Raises ``PolicyError`` with what the engine's models do not have.
    """
    if shape.positions:
        raise PolicyError("its models have no learned positions, only rotary ones")
    groups = [group for group in shape.layers for _ in range(group.count)]
    return replace(
        like,
        name=shape.name,
        hidden_size=shape.width,
        layers=len(groups),
        vocab_size=shape.vocabulary,
        tie_embeddings=shape.tied_embeddings,
        max_model_len=shape.max_model_len,
        **_attention_of([group.mixer for group in groups]),
        **_ffn_of([group.ffn for group in groups], like.ffn_size),
    )


def _attention_of(mixers: list[Mixer]) -> dict[str, Any]:
    """Return the fields of a model whose layers have these mixers."""
    for mixer in mixers:
        if isinstance(mixer, Attention):
            _require_plain(mixer)
    latents = [mixer for mixer in mixers if isinstance(mixer, LatentAttention)]
    plain = [mixer for mixer in mixers if isinstance(mixer, Attention)]
    if len(latents) == len(mixers):
        return _latent_of(_only("latent attention", latents))
    if len(plain) < len(mixers):
        raise PolicyError("its layers have attention, all with key and value heads or all latent")
    windows = tuple(mixer.window_tokens for mixer in plain)
    one = _only("attention heads", (m.model_copy(update={"window_tokens": None}) for m in plain))
    return {
        "heads": one.heads,
        "kv_heads": one.kv_heads,
        "head_dim": one.head_dim,
        "windows": windows if any(windows) else (),
        "sink_tokens": one.sink_tokens,
        "kv_sharing": one.kv_sharing,
        "latent": None,
    }


def _require_plain(mixer: Attention) -> None:
    """Raise ``PolicyError`` for what the engine's attention does not do."""
    lacks = {
        "dilation": mixer.dilation > 1,
        "budget_tokens": mixer.budget_tokens is not None,
        "rank": mixer.rank is not None,
    }
    if missing := [name for name, lacking in lacks.items() if lacking]:
        raise PolicyError(f"its attention has no {', '.join(missing)}")


def _latent_of(mixer: LatentAttention) -> dict[str, Any]:
    latent = LatentConfig(mixer.latent_dim, mixer.rope_dim, mixer.value_dim, mixer.query_latent_dim)
    return {
        "heads": mixer.heads,
        "kv_heads": 1,
        "head_dim": mixer.nope_dim + mixer.rope_dim,
        "windows": (),
        "sink_tokens": 0,
        "kv_sharing": 1,
        "latent": latent,
        "qkv_bias": False,
        "attention_out_bias": False,
        "qk_norm": False,
    }


def _ffn_of(ffns: list[FeedForward], unused_width: int) -> dict[str, Any]:
    """Return the fields of a model whose layers have these feed-forward networks.

    ``unused_width`` is that of the dense ones where there are none.
    """
    if any(ffn.matrices != 3 for ffn in ffns):
        raise PolicyError("its feed-forward networks are gated: 3 matrices")
    dense = [layer for layer, ffn in enumerate(ffns) if isinstance(ffn, Dense)]
    widths = [ffn.width for ffn in ffns if isinstance(ffn, Dense)]
    mixtures = [ffn for ffn in ffns if isinstance(ffn, Experts)]
    if not mixtures:
        return {"ffn_size": _only("widths of the FFN", widths), "experts": None}
    mixture = _only("mixtures of experts", mixtures)
    experts = ExpertConfig(
        experts=mixture.experts,
        top_k=mixture.top_k,
        ffn_size=mixture.width,
        shared_size=mixture.shared_width,
        dense_layers=tuple(dense),
    )
    return {"ffn_size": _only("widths of the FFN", widths or [unused_width]), "experts": experts}


def _only(what: str, values: Iterable[Value]) -> Value:
    """Return the value that all layers have; raise where they have several."""
    first, *others = values
    if any(other != first for other in others):
        raise PolicyError(f"its layers have no different {what}")
    return first


def drafts_of(setup: Setup, target: ModelConfig) -> Drafts:
    """Return the drafts of a setup.

    Raises ``PolicyError`` with what the engine has nothing for.
    """
    law, drafting = setup.acceptance, setup.deployment.drafting
    if not isinstance(law, Chain | Measured | Tree) or drafting is None:
        raise PolicyError("it drafts with a model, with layers of the model itself, or n-grams")
    _require_simple(drafting)
    widths = law.widths if isinstance(law, Tree) else (1,) * (law.rows - 1)
    least = law.least_confidence if isinstance(law, Chain) else 0.0
    if drafting.is_part:
        layers = sum(group.count for group in drafting.model.layers)
        share = layers / target.layers
        return Drafts("layers", widths, layer_share=share, least_confidence=least)
    shape = model_of(drafting.model, target)
    if shape.vocab_size != target.vocab_size:
        raise PolicyError(
            f"it translates no tokens: {shape.name} has {shape.vocab_size} in its vocabulary, "
            f"{target.name} {target.vocab_size}"
        )
    return Drafts("model", widths, model=shape.name, shape=shape, least_confidence=least)


def _require_simple(drafting: Drafting) -> None:
    """Raise ``PolicyError`` for a drafter that is elsewhere, or reads less than all."""
    lacks = {
        f"placement={drafting.placement}": drafting.placement != "device",
        "draft_format": drafting.form is not None,
        "draft_memory=host": not drafting.resident,
        "context_tokens": drafting.context_tokens is not None,
    }
    if missing := [name for name, lacking in lacks.items() if lacking]:
        raise PolicyError(
            f"it has no {', '.join(missing)}; drafts are made beside the model, as it"
        )
