"""``servetwin presets``: known servers by name, what each sets, and which are copies."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

from typer import Argument

from servetwin.app.command import print_result
from servetwin.app.scenario.options.common import Json
from servetwin.policies.presets import PRESETS, Preset, find_preset


def presets(
    names: Annotated[list[str] | None, Argument(metavar="[NAME...]", help="Only these.")] = None,
    as_json: Json = False,
) -> None:
    """List the known servers that --preset imitates: settings, kernels, sources, copies."""
    chosen = {name: find_preset(name) for name in names or PRESETS}
    record = {name: asdict(preset) for name, preset in chosen.items()}
    print_result(as_json, record, (line for entry in chosen.items() for line in _lines(*entry)))


def _lines(name: str, preset: Preset) -> list[str]:
    copy = [f"  same figures as {preset.copy_of}"] if preset.copy_of else []
    eager = ["  kernels of eager PyTorch, on data sheets"] if preset.kernels == "eager" else []
    lines = [name, *_wrapped(preset.imitates), *_wrapped(_settings(preset)), *eager, *copy]
    return [*lines, *_wrapped(f"source: {preset.source}")]


def _settings(preset: Preset) -> str:
    settings: Mapping[str, Any] = {**preset.policies, **preset.cluster}
    return " ".join(f"{key}={value}" for key, value in settings.items())


def _wrapped(text: str) -> list[str]:
    from textwrap import wrap

    from servetwin.app.reports.tables import WIDTH

    return wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
