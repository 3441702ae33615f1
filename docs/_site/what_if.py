"""What one server would do, simulated over a grid: the data of the page "Try it".

The answers are kept in ``build/`` under a digest of the grid and of the code that computes them.
"""

import json
import os
import subprocess
import sys
from functools import cache, partial
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from servetwin.app.reports.run_words import shares_in_words
from servetwin.app.scenario.options.deployment import Deployment
from servetwin.app.scenario.options.distributions import independent_lengths
from servetwin.app.scenario.options.policy import ClusterOptions, PolicyOptions, ScenarioOptions
from servetwin.app.scenario.options.trace import TraceOptions
from servetwin.app.scenario.prices import LISTED
from servetwin.app.scenario.sweep_axes import scenario_at
from servetwin.loadtest.report.limits import parse_slo
from servetwin.sim.experiments.parallel_map import map_on_processes
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.records.metrics import figure
from servetwin.workloads.errors import ServetwinError
from servetwin.workloads.generators.arrivals import PoissonArrivals
from servetwin.workloads.generators.generate import WorkloadSpec, generate
from servetwin.workloads.trace import Trace

_ROOT = Path(__file__).parents[2]
GRID = Path(os.environ.get("SERVETWIN_WHAT_IF", Path(__file__).with_name("what_if.yaml")))
FIGURES = (
    "ttft_s.p50", "ttft_s.p99", "tpot_s.p50", "tpot_s.p99", "output_throughput_tokens_per_s",
)  # fmt: skip
"""The figures of a point, before its share of requests inside each SLO."""
_DATA, _SCRIPT = "assets/what-if-data.js", "assets/what-if.js"
_SHOW = Path(__file__).with_name("what_if.js")
_CODE = ("app/scenario", "policies", "sim", "workloads", "docs/_site/what_if.py")
_DIGITS = 4


def what_if_assets() -> dict[str, str]:
    """Return the scripts of the page by their paths in the site: its answers, then its code."""
    return {_DATA: f"const whatIf = {answers()};\n", _SCRIPT: _SHOW.read_text()}


@cache
def answers() -> str:
    """Return the grid with a curve for each combination, as JSON; simulate where it is not kept."""
    kept = _ROOT / "build" / f"what-if-{_digest()}.json"
    if not kept.exists():
        kept.parent.mkdir(exist_ok=True)
        begun = kept.with_suffix(f".{os.getpid()}")
        subprocess.run([sys.executable, __file__, begun], check=True)  # its processes import this
        begun.rename(kept)
    return kept.read_text()


def _digest() -> str:
    digest = sha256(GRID.read_bytes())
    for place in _CODE:
        path = _ROOT / place
        for file in sorted(path.rglob("*.*")) if path.is_dir() else [path]:
            if file.suffix in (".py", ".json", ".yaml"):
                digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _simulated() -> dict[str, Any]:
    grid = yaml.safe_load(GRID.read_text())
    names = ("models", "gpus", "lengths", "servers")
    places = list(product(*(range(len(grid[name])) for name in names)))
    curves: dict[str, Any] = {}
    simulate = partial(simulate_curve, grid)
    for place, curve in map_on_processes(simulate, places, os.cpu_count() or 1):
        curves["-".join(map(str, places[place]))] = curve
    prices = {gpu["id"]: LISTED["per_hour"][gpu["id"]] for gpu in grid["gpus"]}
    counts = [request_count(grid, rate) for rate in grid["rates"]]
    return {**grid, "counts": counts, "prices": prices, "about": LISTED["about"], "curves": curves}


def request_count(grid: dict[str, Any], rate_per_s: float) -> int:
    """Return how many requests a point has."""
    return max(int(grid["requests"]), round(float(grid["seconds"]) * rate_per_s))


def simulate_curve(grid: dict[str, Any], place: tuple[int, ...]) -> dict[str, Any]:
    """Return the points of a combination over the rates, and the options that name it.

    A point has the ``FIGURES``, then the share inside each SLO.
    """
    names = ("models", "gpus", "lengths", "servers")
    model, gpu, lengths, server = (grid[name][at] for name, at in zip(names, place, strict=True))
    split = f" {server['parallel']} {model['gpus']}" if model["gpus"] > 1 else ""
    start = f"{server['command']} {model['serves']}{split} {server.get('flags', '')}".strip()
    servers = Deployment(gpu=gpu["id"], server=start)
    options = ScenarioOptions(servers, PolicyOptions(), ClusterOptions(), TraceOptions())
    curve: dict[str, Any] = {"start": start, "points": []}
    try:
        for rate in grid["rates"]:
            trace = _trace(lengths["prompt"], lengths["output"], request_count(grid, rate), rate)
            summaries = _summaries(options, trace, grid["slos"])
            shares = [summary["slo_attainment"] for summary in summaries]
            figures = [figure(summaries[0], name) for name in FIGURES]
            curve["points"].append([_rounded(x) for x in figures + shares])
            curve["evidence"] = shares_in_words(summaries[0]["provenance"])
            if shares[-1] < grid["least"]:
                break
    except ServetwinError as error:
        curve["problem"] = str(error)
    return curve


def _summaries(options: ScenarioOptions, trace: Trace, slos: list[Any]) -> list[dict[str, Any]]:
    run = run_once(trace, scenario_at(options, trace, {}, str), seed=0)
    return [run.summary(parse_slo(slo["slo"])) for slo in slos]


@cache
def _trace(prompt: str, output: str, requests: int, rate_per_s: float) -> Trace:
    lengths = independent_lengths(prompt, output)
    return generate(WorkloadSpec(requests, PoissonArrivals(rate_per_s), lengths), 0)


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{_DIGITS}g}")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(_simulated(), separators=(",", ":")))
