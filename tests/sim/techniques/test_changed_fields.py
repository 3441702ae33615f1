"""The fields that techniques change."""

from dataclasses import replace

import pytest

from servetwin.sim.techniques.registry import build_setup, find_technique
from servetwin.sim.techniques.setup import changed_fields

SETUP = build_setup("llama-3-8b", "h100")


@pytest.mark.parametrize(
    ("technique", "fields"),
    [
        ("prefix-cache", ["policies.prefix_cache"]),
        ("weight-int8", ["deployment.decode", "deployment.prefill"]),
        ("multi-query", ["deployment.model.layers.mixer.kv_heads"]),
        ("sliding-window", ["deployment.model.layers.mixer.window_tokens"]),
        ("sliding-window:global_every=4", ["deployment.model.layers"]),
        (
            "latent-attention:latent_dim=64,rope_dim=8,nope_dim=16,value_dim=16",
            ["deployment.model.layers.mixer"],
        ),
        ("experts", ["deployment.model.layers.ffn", "deployment.model.name"]),
        ("tensor-parallel:ways=2", ["deployment.parallel.tensor"]),
        ("weight-offload", ["deployment.offload.resident_weights"]),
        (
            "early-exit",
            ["deployment.early_exit"],
        ),
        (
            "self-speculation",
            [
                "acceptance",
                "deployment.drafting",
                "policies.draft_rows",
                "policies.token_budget",
            ],
        ),
    ],
)
def test_each_changed_field_has_its_path(technique: str, fields: list[str]) -> None:
    assert changed_fields(SETUP, find_technique(technique).apply(SETUP)) == fields


def test_equal_setups_differ_in_nothing_whatever_objects_they_are_made_of() -> None:
    assert changed_fields(SETUP, replace(SETUP)) == []
    assert changed_fields(SETUP, build_setup("llama-3-8b", "h100")) == []
