"""The same model for the simulator and for the engine."""

from dataclasses import replace

import pytest

from servetwin.app.serving.models import model_of, shape_of
from servetwin.engine.models.model_config import PRESETS
from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.catalogue.layers import Attention, Dense, Mixer, Recurrence
from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.catalogue.shipped import shipped_models
from servetwin.workloads.errors import PolicyError
from tests.support.engine_oracle import draw_weights
from tests.support.model_matrix import ALL_MODELS
from tests.support.nested_tensors import tensors_of

TINY = PRESETS["tiny"]
SHAPE = shape_of(TINY)
OTHERS = {
    "glam-64b-64e": "plain FFNs",
    "gpt-3-175b": "learned positions",
    "mamba-2.8b": "states",
    "opt-13b": "learned positions",
    "opt-30b": "learned positions",
    "opt-66b": "learned positions",
    "retnet-like-7b": "states",
    "rwkv-4-14b": "states",
    "rwkv-4-7b": "states",
}
"""Models of the catalogue that the engine does not have, and why."""


@pytest.mark.parametrize("name", ALL_MODELS)
def test_simulator_and_engine_count_the_same_weights_and_bytes(name: str) -> None:
    config = replace(ALL_MODELS[name], weight_sharing=1)  # of which a shape knows nothing
    shape = shape_of(config)
    matrices = sum(t.numel() for t in tensors_of(draw_weights(config=config)) if t.dim() == 2)
    assert shape.params() == matrices
    assert 4 * shape.kv_elements_per_token() == config.kv_bytes_per_token(4)


@pytest.mark.parametrize("name", ALL_MODELS)
def test_there_and_back_is_the_same_model(name: str) -> None:
    config = ALL_MODELS[name]
    back = model_of(shape_of(config), config)
    kept = {"latent": config.latent, "experts": config.experts}  # how it routes is in no shape
    assert replace(back, **kept) == config  # type: ignore[arg-type]
    assert shape_of(back) == shape_of(config)


def test_a_hybrid_has_a_window_in_some_layers() -> None:
    hybrid = replace(TINY, layers=5, windows=(8, 8, None, None, 8))
    shape = shape_of(hybrid)
    assert [group.count for group in shape.layers] == [2, 2, 1]
    assert model_of(shape, TINY).windows == hybrid.windows


@pytest.mark.parametrize("name", [name for name in shipped_models() if name not in OTHERS])
def test_a_model_of_the_catalogue_is_one_of_the_engine(name: str) -> None:
    shape = find_model(name)
    model = model_of(shape, TINY)
    for what in ("params", "active_params", "kv_elements_per_token"):
        assert getattr(shape_of(model), what)() == getattr(shape, what)()


@pytest.mark.parametrize("name", OTHERS)
def test_a_model_of_another_kind_is_refused(name: str) -> None:
    with pytest.raises(PolicyError):
        model_of(find_model(name), TINY)


def with_mixer(mixer: Mixer) -> ModelShape:
    return SHAPE.with_mixers(lambda _: mixer)


PLAIN = Attention(heads=4, kv_heads=2, head_dim=32)


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        (with_mixer(PLAIN.model_copy(update={"rank": 4})), "its attention has no rank"),
        (
            with_mixer(PLAIN.model_copy(update={"dilation": 2, "budget_tokens": 8})),
            "its attention has no dilation, budget_tokens",
        ),
        (
            with_mixer(Recurrence(state_size=4, mixer_params=4)),
            "its layers have attention, all with key and value heads or all latent",
        ),
        (
            SHAPE.with_ffns(lambda _: Dense(width=8, matrices=2)),
            "its feed-forward networks are gated: 3 matrices",
        ),
        (
            SHAPE.with_layers(
                lambda g: [g, g.model_copy(update={"ffn": Dense(width=8), "count": 1})]
            ),
            "its layers have no different widths of the FFN",
        ),
        (
            SHAPE.model_copy(update={"positions": 64}),
            "its models have no learned positions, only rotary ones",
        ),
    ],
)
def test_what_the_engine_does_not_have_is_said(shape: ModelShape, reason: str) -> None:
    with pytest.raises(PolicyError, match=f"^{reason}$"):
        model_of(shape, TINY)
