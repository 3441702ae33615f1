"""A scoreboard of published points: how near data sheets and kernel tables come, by what.

Every run of ``../shared/points`` that can be expressed is simulated by each kind of evidence::

    python -m tests.benchmarks.published_table

- *raw*: a data sheet at the default efficiency;
- *sheet*: at the efficiency of its server that is shipped (``sim/catalogue/efficiencies.json``);
- *kernels*: kernel tables with fitted overheads, where there are any (``--kernels``);
- *chosen*: of these, what a server by name is given: kernel tables where they express the run, else
  the sheet (``--kernels``).

``--fit`` fits what is shipped anew, and writes it: efficiencies on half of the models of these
points, overheads on half of the deployments of InferenceMAX (``published_overheads``).

Printed are median and p90 of the absolute error, bias and count, in per cent, of the models that
were held out, and by source, GPU, engine, family and load of all; then what is left out, and why.
"""

import json
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import typer

from servetwin.sim.catalogue.catalogue import find_hardware
from servetwin.sim.catalogue.versions import of_version, version_numbers
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.step_times.roofline import efficiency
from servetwin.sim.step_times.roofline.efficiency import Efficiency, served_efficiency
from servetwin.sim.step_times.tables import KernelTable, LoadedTable, Table, TableProfile
from servetwin.sim.step_times.tables.kernel_library import installed_package, open_kernels
from servetwin.sim.step_times.tables.server_overheads import fitted_overheads
from servetwin.workloads.errors import ProfileError, ServetwinError
from tests.benchmarks import published_overheads
from tests.benchmarks.black_box import say
from tests.benchmarks.published_fit import (
    HALF_WIDTH,
    START,
    changed,
    expert_shares,
    fitted,
    is_fitted,
)
from tests.benchmarks.published_points import BACKENDS, METRICS, NotExpressed, Point, read_points
from tests.support.paths import ROOT

POINTS = ROOT.parent / "shared" / "points" / "points.csv"
FILE = ROOT / "sim" / "catalogue" / "efficiencies.json"
DEVICES = ("A100 SXM 80GB", "Ascend 910B", "H100 SXM", "H200 SXM")
"""GPUs that share their servers with others; a server of one GPU has its shares already."""
MOST = 12
"""Runs that each server and GPU is fitted on."""
NO_NEARER = ("TensorRT-LLM",)
"""Engines that the fit comes no nearer to on the other half."""
ODD = ("Ascend 910B", "RTX 4090")
"""GPUs with a server or a link of another kind: they have shares, and change no server."""
OF_SERVERS = ("compute", "overhead_s", "sequence_s", "chunk_s")
OF_DEVICES = ("compute", "memory", "host")
FIXED = ("memory", "attention")
NEW_VLLM = (0, 9)
"""The first version of vLLM that is fitted apart from those before."""

Kind = Callable[[Point], Scenario]


def raw(point: Point) -> Scenario:
    """Return the data sheet at the default efficiency."""
    return point.scenario(Efficiency())


def sheet(point: Point) -> Scenario:
    """Return the data sheet at the shipped efficiency of its server."""
    hardware = find_hardware(point.gpu).name
    engine = BACKENDS[point.engine]
    return point.scenario(served_efficiency(engine, hardware, point.version or None))


def kernels(point: Point) -> Scenario:
    """Return kernel tables, with the memory and the limits that follow from the data sheet."""
    scenario, settings, shape = point.scenario(Efficiency()), point.settings(), point.shape()
    hardware, version = find_hardware(point.gpu).name, point.version or None
    of = (shape.name, hardware, settings.backend, settings.layout, shape.quantisation, version)
    opened = _opened(*of)
    if isinstance(opened, ProfileError):
        raise opened
    table: Table = opened
    with suppress(ProfileError):
        table = LoadedTable(opened, fitted_overheads(settings.backend, version))
    profile = TableProfile("kernels", table, scenario.policies, None)
    return replace(
        scenario, profile=profile, cluster=replace(scenario.cluster, replicas=settings.replicas)
    )


@cache
def _opened(*of: Any) -> KernelTable | ProfileError:
    """Return the tables of a deployment, or why there are none: to find that takes seconds."""
    try:
        return open_kernels(*of)
    except ProfileError as error:
        return error


def scored(points: Sequence[Point], kinds: dict[str, Kind]) -> tuple[pd.DataFrame, Counter[str]]:
    """Return the relative errors of every point, and the reasons of those without."""
    lines, reasons = [], Counter[str]()
    for point in points:
        line: dict[str, object] = {
            "publisher": point.publisher, "gpu": point.gpu, "engine": point.engine,
            "version": point.version, "model": point.model, "family": point.family,
            "precision": point.precision, "load": point.load.rstrip("0123456789./s "),
            "half": "fitted on" if is_fitted(point) else "held out", "copied": point.copied,
        }  # fmt: skip
        for kind, scenario in kinds.items():
            try:
                predicted = point.simulated(scenario(point))
            except (NotExpressed, ServetwinError) as error:
                reasons[f"{point.engine}, {kind}: {str(error)[:90]}"] += 1
                continue
            line |= {f"{kind} {m}": 100 * (predicted[m] / v - 1) for m, v in point.measured}
        lines.append(line)
    return pd.DataFrame(lines), reasons


def chosen(errors: pd.DataFrame) -> pd.DataFrame:
    """Return the errors with those of the evidence that is chosen for each run, and its kind."""
    has_tables = errors["kernels duration"].notna()
    sheets = np.where(errors["sheet duration"].notna(), "data sheet", "none")
    of_both = {
        f"chosen {metric}": errors[f"kernels {metric}"].fillna(errors[f"sheet {metric}"])
        for metric in METRICS
    }
    return errors.assign(evidence=np.where(has_tables, "kernel tables", sheets), **of_both)


def printed(errors: pd.DataFrame, name: str, kinds: Sequence[str]) -> None:
    """Print a line per kind: median and p90 of the absolute error, bias, count, by metric."""
    for kind in kinds:
        cells = []
        for metric in METRICS:
            column = errors.get(f"{kind} {metric}", pd.Series(dtype=float)).dropna()
            if len(column):
                off = column.abs()
                cells.append(
                    f"{metric} {off.median():.0f}, {off.quantile(0.9):.0f}, "
                    f"{column.median():+.0f} ({len(column)})"
                )
        if cells:
            say(f"  {name}, {kind}: {'; '.join(cells)}")


def refitted(points: Sequence[Point], package: str) -> dict[str, Any]:
    """Return the shipped efficiencies, fitted anew; as they were where that is no nearer."""
    half = [point for point in points if is_fitted(point) and point.engine not in NO_NEARER]
    shipped: dict[str, Any] = json.loads(FILE.read_text())
    fitted = shipped | fitted_all(half, package)
    before, after = (misfit(half, one) for one in (shipped, fitted))
    say(f"{len(half)} runs: median error {before:.1f} % before, {after:.1f} % after")
    return fitted if after < before else shipped


def misfit(half: Sequence[Point], efficiencies: dict[str, Any]) -> float:
    """Return the mean over the metrics of the median error in per cent."""
    with patch.object(efficiency, "_SERVED", efficiencies):
        errors, _ = scored(half, {"sheet": sheet})
    return float(errors.filter(like="sheet ").abs().median().mean())


def fitted_all(half: Sequence[Point], package: str) -> dict[str, Any]:
    """Return what servers, devices and experts reach by the points of a half."""
    servers: dict[str, list[dict[str, Any]]] = {}
    for engine, is_old in sorted({_server(point) for point in half}, key=lambda one: not one[1]):
        terms = fitted_server(half, (engine, is_old))
        servers.setdefault(BACKENDS[engine], []).append(terms)
    devices = {find_hardware(gpu).name: fitted_device(half, gpu, servers) for gpu in DEVICES}
    experts = {"half_width": HALF_WIDTH, "shares": expert_shares(package)}
    return {"servers": servers, "devices": devices, "experts": experts}


def fitted_server(half: Sequence[Point], server: tuple[str, bool]) -> dict[str, Any]:
    """Return what an engine reaches, old or new."""
    mine = _some([p for p in half if _server(p) == server and p.gpu not in ODD], str(server))
    reached = changed(START, OF_SERVERS, fitted(mine, lambda _: START, OF_SERVERS))
    old: dict[str, Any] = {"until": list(NEW_VLLM)} if server[1] else {}
    terms = {name: float(f"{getattr(reached, name):.3g}") for name in (*OF_SERVERS, *FIXED)}
    return {**old, **terms, "experts": None}


def fitted_device(half: Sequence[Point], gpu: str, servers: dict[str, Any]) -> dict[str, float]:
    """Return the factors of a GPU on what its servers reach."""
    known = [point for point in half if BACKENDS[point.engine] in servers]
    mine = _some([point for point in known if point.gpu == gpu], gpu)

    def reached(point: Point) -> Efficiency:
        terms = of_version(servers[BACKENDS[point.engine]], point.version or None)
        return Efficiency(**{name: v for name, v in terms.items() if name != "until"})

    x = fitted(mine, reached, OF_DEVICES)
    return {n: float(f"{np.exp(v - 1):.3g}") for n, v in zip(OF_DEVICES, x, strict=True)}


def _server(point: Point) -> tuple[str, bool]:
    """Return the engine, and whether it is a vLLM before ``NEW_VLLM``."""
    is_old = bool(point.version) and version_numbers(point.version) < NEW_VLLM
    return point.engine, point.engine == "vLLM" and is_old


def _some(points: Sequence[Point], name: str) -> list[Point]:
    order = np.random.default_rng(1).permutation(len(points))[:MOST]
    say(f"{name}: {len(order)} runs")
    return [points[place] for place in order]


def main(
    with_kernels: Annotated[bool, typer.Option("--kernels", help="Kernel tables, too.")] = False,
    fit: Annotated[bool, typer.Option(help="Fit efficiencies and overheads anew.")] = False,
    out: Annotated[Path | None, typer.Option(help="A CSV of the errors of every point.")] = None,
) -> None:
    """Simulate the points and print the errors."""
    if not POINTS.exists():
        raise SystemExit(f"{POINTS} is missing: published points are no part of the repository")
    logging.disable(logging.WARNING)
    points = read_points(POINTS)
    originals = [point for point in points if not point.copied]
    if fit:
        if (package := installed_package()) is None:
            raise SystemExit("fits need kernel tables: pip install servetwin[kernels]")
        overheads = published_overheads.refitted(package)
        published_overheads.FILE.write_text(json.dumps(overheads, indent=2) + "\n")
        FILE.write_text(json.dumps(refitted(originals, package), indent=2) + "\n")
        return
    kinds: dict[str, Kind] = {"raw": raw, "sheet": sheet}
    if with_kernels:
        kinds["kernels"] = kernels
    errors, reasons = scored(originals, kinds)
    if with_kernels:
        errors = chosen(errors)
        kinds["chosen"] = sheet
        for (engine, evidence), part in errors.groupby(["engine", "evidence"]):
            printed(part, f"{engine}, {evidence}", ["chosen"])
    if out is not None:
        errors.to_csv(out)
    say("median and p90 of the absolute error, bias, count, in per cent:")
    for half, part in errors.groupby("half"):
        printed(part, str(half), list(kinds))
    for column in ("publisher", "engine", "gpu", "family", "load", "precision"):
        for value, part in errors.groupby(column):
            printed(part, f"{column} {value}", list(kinds))
    expressed = errors["raw duration"].notna()
    for engine, of in expressed.groupby(errors["engine"]):
        say(f"{engine}: {of.sum()} of {len(of)} runs expressed ({of.mean():.0%})")
    say(f"left out, {len(points) - len(originals)} copies of figures; and:")
    for reason, count in reasons.most_common():
        say(f"  {count}: {reason}")


if __name__ == "__main__":
    typer.run(main)
