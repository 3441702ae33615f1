"""Which memories that forget the bundled engine has, and why not the others."""

from dataclasses import replace
from typing import Any

import pytest

from servetwin.engine.drafting.drafts import Drafts
from servetwin.engine.kv.forgetting import KeptTokens, kept_tokens
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.model_config import LatentConfig, model_preset
from servetwin.policies.config import PolicyConfig
from servetwin.workloads.errors import EngineError

MODEL, PLAIN = model_preset("tiny"), Computation()
KEPT = PolicyConfig(kv="grouped", kv_groups="kept:12")


def test_memory_keeps_the_window_and_the_sinks() -> None:
    assert kept_tokens(MODEL, PolicyConfig(), PLAIN) is None
    assert kept_tokens(MODEL, PolicyConfig(kv="grouped"), PLAIN) is None
    assert kept_tokens(MODEL, KEPT, PLAIN) == KeptTokens(12)
    assert kept_tokens(replace(MODEL, sink_tokens=4), KEPT, PLAIN) == KeptTokens(8, 4)
    every = replace(MODEL, windows=(12,) * MODEL.layers)
    assert kept_tokens(every, KEPT, PLAIN) == KeptTokens(12)


@pytest.mark.parametrize(
    ("model", "policies", "computation", "message"),
    [
        ({}, {"kv_groups": "full,kept:9"}, {}, "kv_groups: full,kept:9 is simulated only; the lay"),
        ({}, {"kv_groups": "window:32"}, {}, "kv_groups: window:32 is simulated only; the layers"),
        (
            {"sink_tokens": 12},
            {},
            {},
            "kv_groups: kept:12 leaves no window beside 12 sinks; give more",
        ),
        (
            {"windows": (None,) + (8,) * (MODEL.layers - 1)},
            {},
            {},
            "kv_groups: kept:12 with 0 sinks keeps a window of 12 in every layer; those of model "
            "tiny are 8, none, use kv: paged",
        ),
        (
            {"sink_tokens": 4},
            {"kv": "paged"},
            {},
            "sinks: 4 of model tiny have places within a cache that forgets; use kv: grouped",
        ),
        ({}, {}, {"kv_cache": False}, "kv 'grouped': without a KV cache there is nothing to forg"),
        ({}, {}, {"tensor_parallel": 2}, "kv 'grouped': ranks keep every token; use kv: paged"),
        ({}, {}, {"drafts": Drafts("n-gram", (1,))}, "kv 'grouped': rejected drafts would take"),
        (
            {"kv_heads": 1, "head_dim": 24, "latent": LatentConfig(20, 8, 16)},
            {},
            {},
            "kv 'grouped': latents, keys that layers share, and those with caps",
        ),
    ],
)
def test_what_it_does_not_forget_is_refused_with_the_reason(
    model: dict[str, Any], policies: dict[str, Any], computation: dict[str, Any], message: str
) -> None:
    with pytest.raises(EngineError) as refused:
        kept_tokens(
            replace(MODEL, **model), KEPT.changed(**policies), replace(PLAIN, **computation)
        )
    assert str(refused.value).startswith(message)
