"""docs/catalogues.md has every entry of the catalogues, with the figures of the data files."""

import re

import pytest

from servetwin.sim.catalogue.catalogue import (
    find_hardware,
    find_model,
)
from servetwin.sim.catalogue.hardware import Hardware
from servetwin.sim.catalogue.layers import (
    Attention,
    Dense,
    Experts,
    LatentAttention,
    Mixer,
    Recurrence,
)
from servetwin.sim.catalogue.model import LayerGroup, ModelShape
from servetwin.sim.catalogue.shipped import shipped_hardware, shipped_models
from tests.support.paths import DOCS

PAGE = (DOCS / "catalogues.md").read_text()
PARTS = (ModelShape, LayerGroup, Attention, LatentAttention, Recurrence, Dense, Experts, Hardware)


def rows(heading: str) -> dict[str, list[str]]:
    """The cells of the table whose first column has this heading, by name."""
    table = re.search(rf"^\| {heading} \|.*\n\|[-|:]+\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert table
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table[1].splitlines()]
    return {row[0].strip("`"): row[1:] for row in cells}


def heads(mixer: Mixer) -> str:
    match mixer:
        case Attention():
            return f"{mixer.heads} / {mixer.kv_heads}"
        case LatentAttention():
            return f"{mixer.heads} / latent"
        case Recurrence():
            return "state"


def model_row(name: str) -> list[str]:
    model = find_model(name)
    return [
        str(model.layer_count),
        str(model.width),
        heads(model.layers[0].mixer),
        f"{model.params():,.0f}",
        f"{model.active_params():,.0f}" if model.active_params() < model.params() else "",
        f"{2 * model.kv_elements_per_token():,.0f}",
        f"{model.max_model_len:,}",
    ]


def device_row(name: str) -> list[str]:
    device = find_hardware(name)
    peaks = device.peak_flops_per_s
    return [
        *(f"{peaks[p] / 1e12:.6g}" if p in peaks else "" for p in ("fp32", "bf16")),
        *(f"{peaks[p] / 1e12:.6g}" if p in peaks else "" for p in ("fp8", "int8", "int4", "fp4")),
        f"{device.memory_bytes / 1e9:.6g}",
        f"{device.memory_bytes_per_s / 1e9:.6g}",
        f"{device.ridge_flops_per_byte():.0f}",
        str(device.compute_units),
        f"{device.link_bytes_per_s / 1e9:.6g}",
        f"{device.host_link_bytes_per_s / 1e9:.6g}",
    ]


def test_tables_list_what_is_shipped() -> None:
    assert sorted(rows("model")) == shipped_models()
    assert sorted(rows("device")) == shipped_hardware()


@pytest.mark.parametrize("name", shipped_models())
def test_the_row_of_a_model_is_that_of_its_file(name: str) -> None:
    assert rows("model")[name] == model_row(name)


@pytest.mark.parametrize("name", shipped_hardware())
def test_the_row_of_a_device_is_that_of_its_file(name: str) -> None:
    assert rows("device")[name] == device_row(name)


def test_every_field_is_described() -> None:
    fields = {field for part in PARTS for field in part.model_fields}
    assert [field for field in sorted(fields) if f"`{field}`" not in PAGE] == []
