"""Techniques that change the model, from the command's words to tokens of the engine."""

import pytest

from servetwin.app.serving.techniques import with_techniques
from servetwin.app.verdict.effects.sides import sides_of
from servetwin.engine.core.messages import TokenEvent
from servetwin.engine.models.computation import Computation
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.serve_options import ServeOptions
from servetwin.policies.config import PolicyConfig
from servetwin.sim.techniques.registry import Toggles, find_technique
from tests.support.known_effects import HARDWARE

pytest.importorskip("torch")

from servetwin.engine.core.build import build_core

TINY = ServeOptions("tiny", PolicyConfig(kv_tokens=256, max_model_len=64))
PLAIN_WEIGHTS, PLAIN_KV_BYTES = 459_392, 256 * 2 * 2 * 2 * 32 * 4
"""Of ``tiny`` in float32."""


@pytest.mark.parametrize(
    ("technique", "weights", "kv_bytes"),
    [
        ("multi-query", -2 * 2 * 32 * 128, 1 / 2),
        ("grouped-query:kv_heads=1", -2 * 2 * 32 * 128, 1 / 2),
        ("cross-layer", -2 * 2 * 32 * 128, 1 / 2),
        ("weight-sharing", -(3 * 128 * 384 + 2 * 128 * 32 * 6 + 2 * 128), 1),
        ("sliding-window:window_tokens=8", 0, 1),
        ("experts:experts=4", 2 * 4 * 128, 1),
        ("structured-pruning:kept_heads=0.5", -2 * (3 * 128 * 96 + 2 * 128 * 32 * 3), 1 / 2),
        (
            "latent-attention:latent_dim=24,rope_dim=8,nope_dim=32,value_dim=32",
            2 * (128 * 4 * 40 + 128 * 32 + 24 + 24 * 4 * 64 + 4 * 32 * 128 - 2 * 128 * 32 * 6),
            1 / 4,
        ),
    ],
)
def test_the_changed_model_has_its_weights_and_bytes_and_answers(
    technique: str, weights: int, kv_bytes: float
) -> None:
    plain = ServeOptions("tiny", TINY.policies, computation=Computation(device="cpu"))
    core, facts = build_core(with_techniques(plain, Toggles.of([technique], ())))
    assert facts["runner"]["parameters"] == PLAIN_WEIGHTS + weights
    assert facts["runner"]["kv_bytes"] == PLAIN_KV_BYTES * kv_bytes
    assert core.add("r", list(range(20)), SamplingParams(5, ignore_eos=True), core.clock()) is None
    events: list[TokenEvent] = []
    while core.unfinished:
        events += [e for e in core.step(core.clock()) or [] if isinstance(e, TokenEvent)]
    assert [event.finish_reason for event in events] == [None] * 4 + ["length"]


@pytest.mark.parametrize(
    "technique",
    [
        "multi-query", "cross-layer", "weight-sharing", "experts:experts=4", "early-exit",
        "structured-pruning:kept_heads=0.5",
        "latent-attention:latent_dim=24,rope_dim=8,nope_dim=32,value_dim=32",
    ],
)  # fmt: skip
def test_the_engine_keeps_as_many_bytes_as_the_formula_says(technique: str) -> None:
    plain = ServeOptions("tiny", TINY.policies, computation=Computation(device="cpu"))
    sides = sides_of(plain, find_technique(technique), Toggles.of((), ()), HARDWARE)
    for side in (sides.without, sides.with_it):
        _, facts = build_core(side.options)
        deployment, runner = side.setup.deployment, facts["runner"]
        assert runner["weight_bytes"] == deployment.resident_weight_bytes()
        assert runner["kv_bytes"] / runner["kv_tokens"] == deployment.kv_bytes_per_token()
