"""The catalogues: every entry loads under its name."""

import pytest

from servetwin.engine.models.model_config import PRESETS
from servetwin.engine.models.tensor_layout import parameters
from servetwin.sim.catalogue.catalogue import (
    find_hardware,
    find_model,
)
from servetwin.sim.catalogue.shipped import shipped_hardware, shipped_models

BYTES = 2  # per element, in all tables


@pytest.mark.parametrize("name", shipped_models())
def test_a_model_loads_under_its_name_with_a_source(name: str) -> None:
    model = find_model(name)
    assert model.name == name
    assert len(model.source) > 20
    assert 0 < model.active_params() <= model.params()


@pytest.mark.parametrize("name", shipped_hardware())
def test_a_device_loads_under_its_name_with_a_source_and_possible_figures(name: str) -> None:
    device = find_hardware(name)
    assert device.name == name
    assert len(device.source) > 20
    rising = ("fp32", "bf16", "fp8", "int8", "int4")
    peaks = [device.peak_flops_per_s[p] for p in rising if p in device.peak_flops_per_s]
    assert peaks == sorted(peaks)
    assert device.host_link_bytes_per_s <= device.memory_bytes_per_s


@pytest.mark.parametrize("name", PRESETS)
def test_presets_of_the_engine_are_shipped_as_they_are(name: str) -> None:
    model, preset = find_model(name), PRESETS[name]
    norms = preset.hidden_size * (2 * preset.layers + 1)
    assert model.params() == parameters(preset) - norms
    assert BYTES * model.kv_elements_per_token() == preset.kv_bytes_per_token(BYTES)
    assert model.max_model_len == preset.max_model_len
