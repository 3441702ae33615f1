"""The table of ``servetwin techniques formats``: what a weight weighs, its noise, its quality."""

from collections.abc import Iterator
from textwrap import wrap
from typing import Any

from servetwin.app.reports.techniques.quality import quality_as_dict, quality_cell
from servetwin.app.scenario.options.techniques import FormatOptions
from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.step_times.roofline.formats import (
    BLOCK_FORMATS,
    FORMATS,
    KV_FORMATS,
    Format,
    most_sqnr_db,
    noise_bits,
    sqnr_db,
)
from servetwin.sim.techniques.quality import KEPT, Quality, quality_of
from servetwin.sim.techniques.registry import find_technique

MODEL = "llama-2-7b"
TECHNIQUES = {
    "fp8": "fp8",
    "bf8": "fp8:format=e5m2",
    "w8a8": "smooth-quant",
    "llm-int8": "llm-int8",
    "int8": "weight-int8",
    "int4": "weight-int4",
    "gptq": "gptq",
    "awq": "awq",
    **{name: f"gguf:format={name}" for name in BLOCK_FORMATS},
}
"""The technique that puts weights into a format, by the format."""
_HEAD = (
    f"{'format':<10}{'bits':>8}{'GB':>9}  {'products':<10}{'scales':<9}{'made from':<11}"
    f"{'SQNR dB':>8}{'at most':>9}{'quality':>14}"
)
_MADE_FROM = {"none": "weights", "data": "data", "training": "training"}


def formats_report(options: FormatOptions) -> dict[str, Any]:
    """Return every format of weights with its size, its noise and its quality on a model.

    Raises ``ServetwinError`` for an unknown model.
    """
    model = find_model(MODEL if options.model is None else options.model)
    return {
        "model": model.name,
        "formats": [_entry(form, model) for form in FORMATS.values()],
        "kv_formats": [{"name": n, "bytes_per_element": size} for n, size in KV_FORMATS.items()],
    }


def formats_lines(report: dict[str, Any]) -> Iterator[str]:
    """Return a row for each format, then those of keys and values."""
    yield f"{report['model']}, all weights in one format; bits: a weight, scales included"
    yield _HEAD
    model = find_model(report["model"])
    for entry in report["formats"]:
        noise = "-" if entry["sqnr_db"] is None else f"{entry['sqnr_db']:.1f}"
        quality = quality_cell(_quality(entry["name"], model))
        yield (
            f"{entry['name']:<10}{entry['bits_per_weight']:>8.4g}"
            f"{entry['weight_bytes'] / 1e9:>9.3f}  {entry['products']:<10}"
            f"{entry['activation_scales']:<9}"
            f"{_MADE_FROM[entry['calibration']]:<11}{noise:>8}{entry['most_sqnr_db']:>9.1f}"
            f"{quality:>14}"
        )
    yield "SQNR: of normal weights by formula, 6.02 dB a bit (- a codebook has none); at most: what"
    yield "no format of so many bits exceeds; scales: of activations; ~ measured on another model"
    sizes = (f"{kv['name']} {kv['bytes_per_element']:g}" for kv in report["kv_formats"])
    yield from wrap(f"KV bytes per element, head size 128: {', '.join(sizes)}", 100)


def _entry(form: Format, model: ModelShape) -> dict[str, Any]:
    bits = 8 * form.weight_bytes
    return {
        "name": form.name,
        "bits_per_weight": bits,
        "weight_bytes": form.bytes_in_memory * model.params(),
        "products": form.compute,
        "activation_scales": form.activation_scales,
        "calibration": form.calibration,
        "sqnr_db": sqnr_db(form.grid) if form.grid else None,
        "noise_bits": noise_bits(form.grid) if form.grid else None,
        "most_sqnr_db": most_sqnr_db(bits),
        "quality": quality_as_dict(_quality(form.name, model)),
        "source": form.source,
    }


def _quality(name: str, model: ModelShape) -> Quality | None:
    if FORMATS[name].lossless:
        return KEPT
    return quality_of(find_technique(TECHNIQUES[name]), model)
