"""What techniques and number formats cost in quality, beside what they gain, as text and JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from servetwin.app.reports.table import table_lines, wrapped
from servetwin.app.words import asset_table
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
from servetwin.sim.techniques.effects import DEAD_BAND, Effect
from servetwin.sim.techniques.quality import (
    KEPT,
    Quality,
    on_quality_front,
    published_quality,
    quality_of,
)
from servetwin.sim.techniques.registry import find_technique
from servetwin.sim.techniques.technique import Technique

NOT_KNOWN = "not known"


@dataclass(frozen=True, slots=True)
class RatedEffect:
    """An effect, and the quality of its technique.

    ``aside`` says why its throughput is not compared with that of others: the server has the
    technique already, or it was measured against its opposite, or under another load. Empty where
    it is compared.
    """

    effect: Effect
    quality: Quality | None
    aside: str = ""

    @property
    def throughput_change(self) -> float | None:
        """Return the relative change of throughput; None where it was not measured."""
        return None if self.effect.refused else self.effect.of("throughput").change


def quality_cell(quality: Quality | None) -> str:
    """Return the change, such as ``ppl +4.8%``; ``~``: measured on another model."""
    if quality is None:
        return NOT_KNOWN
    if quality.metric is None:
        return "0"
    other = "~" if quality.basis == "nearest model" else ""
    return f"{_WORDS['metrics'][quality.metric]} {100 * quality.change:+.1f}%{other}"


def signed_cell(quality: Quality | None) -> str:
    """Return ``+`` better, ``-`` worse or ``0``, and the change; a kept quality is only ``0``."""
    cell = quality_cell(quality)
    if quality is None or quality.metric is None:
        return cell
    return f"{'0' if abs(quality.loss) < DEAD_BAND else '-' if quality.loss > 0 else '+'} {cell}"


def quality_source(quality: Quality | None) -> str:
    """Return in a sentence how a quality is known."""
    if quality is None:
        return "no figure is known; give your own with --quality"
    if quality.metric is None or quality.basis == "own value":
        return f"{quality.basis}: {quality.source}"
    method = f", {quality.method}" if quality.method else ""
    other = "another model, " if quality.basis == "nearest model" else ""
    return (
        f"{quality.metric} {quality.before:g} to {quality.after:g} ({quality.task}) on {other}"
        f"{quality.model}{method}; {quality.source}"
    )


def quality_known(technique: type[Technique]) -> str:
    """Return whether the quality of a technique is kept, published of some model, or not known."""
    if technique.lossless:
        return "kept"
    published = {series.name for series in published_quality().series}
    return "published" if technique.name in published else NOT_KNOWN


def quality_lines(judged: Sequence[RatedEffect]) -> Iterator[str]:
    """Return quality against throughput with its front, then how each quality is known.

    Empty where no technique with a known quality has a throughput.
    """
    rows = [
        (one.throughput_change, one, best)
        for one, best in zip(judged, on_front(judged), strict=True)
        if one.quality is not None and one.throughput_change is not None
    ]
    if not rows:
        return
    yield "Quality against throughput; * on the front: no other gains more and loses no more"
    yield "(perplexity and accuracy are not compared; ~ measured on another model):"
    yield ""
    table = [
        [
            f"{'*' if best else ' '} {one.effect.technique.name}",
            quality_cell(one.quality),
            f"{100 * gain:+.1f}",
            f"({one.aside})" if one.aside else "",
        ]
        for gain, one, best in sorted(rows, key=lambda row: -row[0])
    ]
    yield from table_lines(["  technique", "quality", "thrput %", ""], table, "<>><")
    yield ""
    yield from _source_lines(judged)


def quality_as_dict(quality: Quality | None) -> dict[str, Any]:
    """Return a quality unrounded, for JSON."""
    if quality is None:
        return {"basis": NOT_KNOWN}
    return {**asdict(quality), "loss": quality.loss}


def on_front(judged: Sequence[RatedEffect]) -> list[bool | None]:
    """Return which are on the front of quality against throughput; None for those not compared."""
    points = [
        None if one.aside or one.quality is None or one.throughput_change is None
        else (one.quality, one.throughput_change)
        for one in judged
    ]  # fmt: skip
    marks = iter(on_quality_front([point for point in points if point]))
    return [next(marks) if point else None for point in points]


def _source_lines(judged: Sequence[RatedEffect]) -> Iterator[str]:
    unknown = []
    for one in judged:
        name = one.effect.technique.name
        if one.quality is None and not one.effect.refused:
            unknown.append(name)
        elif one.quality is not None and one.quality.metric is not None:
            text = f"  {name}: {quality_source(one.quality)}"
            yield from wrapped([text], "    ")
    if unknown:
        yield from wrapped([f"  {NOT_KNOWN}: {', '.join(unknown)}"], "    ")


MODEL = "llama-2-7b"
_WORDS = asset_table("words.yaml")["formats"]
# The technique that puts weights into a format, by the format.
TECHNIQUES = _WORDS["techniques"] | {name: f"gguf:format={name}" for name in BLOCK_FORMATS}


def formats_report(name: str | None) -> dict[str, Any]:
    """Return every format of weights with its size, its noise and its quality on a model.

    Raises ``ServetwinError`` for an unknown model.
    """
    model = find_model(MODEL if name is None else name)
    return {
        "model": model.name,
        "formats": [_entry(form, model) for form in FORMATS.values()],
        "kv_formats": [{"name": n, "bytes_per_element": size} for n, size in KV_FORMATS.items()],
    }


def formats_lines(report: dict[str, Any]) -> Iterator[str]:
    """Return a row for each format, then those of keys and values."""
    yield f"{report['model']}, all weights in one format; bits: a weight, scales included"
    model = find_model(report["model"])
    rows = [
        [
            entry["name"],
            f"{entry['bits_per_weight']:.4g}",
            f"{entry['weight_bytes'] / 1e9:.3f}",
            entry["products"],
            entry["activation_scales"],
            _WORDS["made_from"][entry["calibration"]],
            "-" if entry["sqnr_db"] is None else f"{entry['sqnr_db']:.1f}",
            f"{entry['most_sqnr_db']:.1f}",
            quality_cell(_quality(entry["name"], model)),
        ]
        for entry in report["formats"]
    ]
    yield from table_lines(_WORDS["heads"], rows, "<>><<<>>>")
    yield "SQNR: of normal weights by formula, 6.02 dB a bit (- a codebook has none); at most: what"
    yield "no format with as many bits exceeds; scales: of activations; ~ measured on another model"
    sizes = (f"{kv['name']} {kv['bytes_per_element']:g}" for kv in report["kv_formats"])
    yield from wrapped([f"KV bytes per element, head size 128: {', '.join(sizes)}"])


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
