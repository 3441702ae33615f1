"""``servetwin list``: models, devices, profiles, presets and policies that are known by name."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated, Any

from typer import Argument

from servetwin.app.command import WIDTH, print_result, section
from servetwin.app.scenario.options.common import Json
from servetwin.app.scenario.options.deployment import Deployment
from servetwin.app.scenario.options.groups import takes_options

Words = Annotated[
    list[str] | None,
    Argument(metavar="[NAME...]", help="Only these, or those that have it inside."),
]


@takes_options("--gpu")
def list_models(
    servers: Annotated[Deployment, ("gpu",)],
    words: Words = None,
    as_json: Json = False,
) -> None:
    """List the models that --model knows: weights, formats, evidence on a --gpu.

    Every model has its data sheet on every device; kernel tables come with servetwin[kernels].
    """
    from servetwin.sim.catalogue.catalogue import find_hardware, find_model
    from servetwin.sim.catalogue.hub_names import hub_models
    from servetwin.sim.catalogue.shipped import shipped_models

    device = find_hardware(servers.gpu).name if servers.gpu else None
    known = _chosen([*shipped_models(), *hub_models()], words)
    rows = [_model_row(name, find_model(name), device) for name in known]
    print_result(as_json, {"models": rows}, (_model_line(row) for row in rows))


@takes_options("--model")
def list_devices(
    servers: Annotated[Deployment, ("model",)],
    words: Words = None,
    as_json: Json = False,
) -> None:
    """List the devices that --gpu knows: memory, bandwidth, peaks, evidence for a --model."""
    from servetwin.sim.catalogue.catalogue import find_hardware, find_model
    from servetwin.sim.catalogue.shipped import shipped_hardware

    shape = find_model(servers.model).name if servers.model else None
    known = _chosen(shipped_hardware(), [find_hardware(word).name for word in words or ()])
    rows = [_device_row(find_hardware(name), shape) for name in known]
    print_result(as_json, {"devices": rows}, (_device_line(row) for row in rows))


def list_profiles(words: Words = None, as_json: Json = False) -> None:
    """List the profiles that --profile knows: what they are of, and where their times come from."""
    from servetwin.sim.step_times.profile import load_profile, shipped_profiles

    known = [load_profile(name) for name in _chosen(shipped_profiles(), words)]
    record = {one.name: {"origin": one.origin, **one.engine} for one in known}
    about = ((one.name, one.describe()[0].partition("(")[2].rstrip(")")) for one in known)
    print_result(as_json, record, (f"{name:<20} {origin}" for name, origin in about))


def list_policies(words: Words = None, as_json: Json = False) -> None:
    """List the policies by the option that takes them: schedulers, KV memories, routers, queues."""
    from inspect import getdoc

    from servetwin.policies.registry import EVICTION_ORDERS, MEMORIES, ROUTERS, SCHEDULERS

    kinds: dict[str, Any] = {
        "--batching": SCHEDULERS, "--kv": MEMORIES, "--router": ROUTERS,
        "--set eviction=": EVICTION_ORDERS,
    }  # fmt: skip
    known = _chosen([name for kind in kinds.values() for name in kind], words)
    about = {
        option: {n: (getdoc(kind[n]) or "").partition("\n")[0].replace("``", "") for n in named}
        for option, kind in kinds.items()
        if (named := [name for name in kind if name in known])
    }
    print_result(as_json, about, (section(option, row.items()) for option, row in about.items()))


def list_presets(
    names: Annotated[list[str] | None, Argument(metavar="[NAME...]", help="Only these.")] = None,
    as_json: Json = False,
) -> None:
    """List the known servers that --preset imitates: settings, kernels, sources, copies."""
    from servetwin.policies.presets import PRESETS, find_preset

    chosen = {name: find_preset(name) for name in names or PRESETS}
    record = {name: asdict(preset) for name, preset in chosen.items()}
    lines = (line for entry in chosen.items() for line in _preset_lines(*entry))
    print_result(as_json, record, lines)


def _preset_lines(name: str, preset: Any) -> list[str]:
    copy = [f"  same figures as {preset.copy_of}"] if preset.copy_of else []
    eager = ["  kernels of eager PyTorch, on data sheets"] if preset.kernels == "eager" else []
    values = (*preset.policies.items(), *preset.cluster.items())
    settings = " ".join(f"{key}={value}" for key, value in values)
    lines = [name, *_wrapped(preset.imitates), *_wrapped(settings), *eager, *copy]
    return [*lines, *_wrapped(f"source: {preset.source}")]


def _wrapped(text: str) -> list[str]:
    from textwrap import wrap

    return wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)


def _chosen(known: list[str], wanted: Iterable[str] | None) -> list[str]:
    """Return the known names that have one of ``wanted`` inside; raises where none has."""
    from servetwin.workloads.errors import ShapeError, did_you_mean

    words = list(wanted or ())
    for word in words:
        if not any(word.lower() in name.lower() for name in known):
            raise ShapeError(f"no name has {word!r} inside; {did_you_mean(word, known, 'none is')}")
    return [n for n in known if not words or any(word.lower() in n.lower() for word in words)]


def _model_row(name: str, model: Any, device: str | None) -> dict[str, Any]:
    from servetwin.sim.step_times.tables.kernel_library import backends_with_tables, kernel_support

    devices = [device] if device else sorted({d for one in kernel_support().values() for d in one})
    tables = {d: found for d in devices if (found := backends_with_tables(name, d))}
    formats = model.quantisation
    return {
        "name": name,
        "weights": model.params(),
        "active": model.active_params(),
        "max_model_len": model.max_model_len,
        "formats": {"gemm": formats.gemm, "experts": formats.experts, "kv": formats.kv},
        "source": model.source,
        "kernels": tables,
    }


def _model_line(row: dict[str, Any]) -> str:
    formats = "+".join(dict.fromkeys((row["formats"]["experts"], row["formats"]["gemm"])))
    size = f"{row['weights'] / 1e9:,.1f} B"
    return f"{row['name']:<48} {size:>10}  {formats:<15} {_evidence(row['kernels'])}"


def _device_row(device: Any, model: str | None) -> dict[str, Any]:
    from servetwin.sim.step_times.tables.kernel_library import backends_with_tables, kernel_support

    if model is not None:
        tables = backends_with_tables(model, device.name)
    else:
        found = (one.get(device.name, ()) for one in kernel_support().values())
        tables = tuple(dict.fromkeys(backend for backends in found for backend in backends))
    return {
        "name": device.name,
        "aliases": device.aliases,
        "memory_bytes": device.memory_bytes,
        "memory_bytes_per_s": device.memory_bytes_per_s,
        "peak_flops_per_s": device.peak_flops_per_s,
        "source": device.source,
        "kernels": {device.name: tables} if tables else {},
    }


def _device_line(row: dict[str, Any]) -> str:
    peaks = row["peak_flops_per_s"]
    known = (name for name in ("bf16", "fp8", "fp4") if name in peaks)
    shown = ", ".join(f"{name} {peaks[name] / 1e12:,.0f}" for name in known) + " TFLOP/s"
    memory = f"{row['memory_bytes'] / 1e9:.0f} GB"
    speed = f"{row['memory_bytes_per_s'] / 1e9:,.0f} GB/s"
    return f"{row['name']:<14} {memory:>7} {speed:>11}  {shown:<44} {_evidence(row['kernels'])}"


def _evidence(tables: dict[str, tuple[str, ...]]) -> str:
    """Return the kinds of evidence, in words."""
    if not tables:
        return "data sheet"
    if len(tables) > 1:
        return f"data sheet, kernel tables of {len(tables)} devices"
    return f"data sheet, kernel tables ({', '.join(next(iter(tables.values())))})"
