"""Predictions of real GPU servers by every kind of evidence, for the trust page and the results.

The runs were recorded by others (``../shared/gpu``): vLLM on two GPUs, stamps inside the engine.
Each is predicted from layer times of its GPU, from the stamps of its first half, from kernel
tables, from both of these, and from a data sheet alone::

    python -m tests.benchmarks.real_gpus --write

Printed is a table in Markdown; ``--write`` renews the file that the trust page reads. It holds
means and p90s, not the rows of the runs. Kernel tables need ``servetwin[kernels]``.
"""

import datetime
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from servetwin.app.calibration.recorded import calibrate_recorded
from servetwin.app.dashboard.trust.real_gpus import EVIDENCE, FILE, figures_by_evidence
from servetwin.app.figures.agreement import shown_metric
from servetwin.app.scenario.options.deployment import Deployment
from servetwin.app.scenario.options.policy import ClusterOptions, PolicyOptions
from servetwin.app.scenario.scenarios import recorded_prior, recorded_server
from servetwin.app.words import number
from servetwin.loadtest.recorded.reading import read_recording
from servetwin.loadtest.recorded.recorded_run import RecordedRun, as_recorded_run
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.experiments.stamp_fit import FITTED
from servetwin.sim.records.metrics import LATENCIES
from servetwin.sim.step_times.linearised import linearised
from servetwin.sim.step_times.tables.kernel_library import SYSTEMS, open_kernels
from tests.benchmarks.black_box import say
from tests.support.paths import GPU_RUNS

Figures = dict[str, dict[str, dict[str, float]]]

MODEL = "llama-3.1-8b"
BACKEND = "vllm"
UNTIL = 0.5
LOAD = (
    "ShareGPT requests at about 10/s, answers of fixed length, stamps inside the engine: no HTTP."
)
SOURCE = "LLMServingSim, commit 5daddb2, MIT licence, Copyright (c) 2024 CASYS Lab at KAIST"


@dataclass(frozen=True)
class Server:
    """A server that others measured: its GPU, folder and limits, as its engine was started."""

    gpu: str
    device: str
    folder: str
    settings: tuple[str, ...]

    @property
    def path(self) -> Path:
        """The folder of its run and of the layer times of its GPU."""
        return GPU_RUNS / self.folder

    @property
    def policies(self) -> PolicyOptions:
        """The policies of the engine, vLLM 0.19, which decides in step."""
        return PolicyOptions(preset="vllm-v1", settings=(*self.settings, "decide_ahead=off"))

    @property
    def has_kernels(self) -> bool:
        """Whether the library has kernel tables of its GPU."""
        return self.device in SYSTEMS

    def recorded(self) -> RecordedRun:
        """Read its run."""
        return as_recorded_run(read_recording(self.path / "measured.jsonl"), "measured.jsonl")

    def by(self, evidence: str) -> Deployment:
        """Return the options of ``verify --recorded`` for what its step times are from."""
        sheet = Deployment(model=MODEL, gpu=self.device, efficiency="compute=0.65,memory=0.8")
        if evidence == "layers":
            return Deployment(model=MODEL, times=f"layers:{self.path / 'layers'}")
        if evidence == "stamps":
            return Deployment()
        return sheet if evidence == "sheet" else replace(sheet, times=f"kernels:{BACKEND}")


SERVERS = (
    Server(
        "RTX 4090",
        "rtx-4090",
        "rtx4090-llama-3.1-8b",
        ("max_seqs=256", "token_budget=2048", "kv_tokens=41408"),
    ),
    Server(
        "RTX PRO 6000",
        "rtx-pro-6000",
        "rtxpro6000-llama-3.1-8b",
        ("max_seqs=128", "token_budget=2048"),
    ),
)
FROM_STAMPS = ("stamps", "kernels_and_stamps")


def predictions(server: Server, recorded: RecordedRun) -> Iterator[dict[str, Any]]:
    """Predict a run by each kind of evidence; ``missing`` says why one has no figures."""
    for evidence in EVIDENCE:
        if "kernels" in evidence and not server.has_kernels:
            yield {"evidence": evidence, "missing": "no tables"}
            continue
        ours, measured = predicted(server, recorded, evidence)
        figures = compared(ours, measured)
        yield {"evidence": evidence, "requests": len(measured), "figures": figures}


def predicted(
    server: Server, recorded: RecordedRun, evidence: str
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the requests as predicted and as measured: all, or those after the fitted stamps."""
    servers, trace, alone = server.by(evidence), recorded.trace, ClusterOptions()
    measured = recorded.run.requests.sort_values("scheduled_s", kind="stable")
    if evidence not in FROM_STAMPS:
        scenario = recorded_server(trace, servers, server.policies, alone)
        return run_once(trace, scenario).requests, measured
    config, times = recorded_prior(trace, servers, server.policies, alone)
    prior = linearised(times, FITTED) if times else None
    found = calibrate_recorded(recorded, config, until=UNTIL, prior=prior)
    return found.fit.run.requests, measured.iloc[found.fitted :]


def compared(ours: pd.DataFrame, measured: pd.DataFrame) -> Figures:
    """Return predicted, measured and relative error of each latency, of the measured requests."""
    ours = ours.set_index("request_id").loc[measured["request_id"]]
    found: Figures = {}
    for name in LATENCIES:
        for point, of in (("mean", pd.Series.mean), ("p90", lambda values: values.quantile(0.9))):
            pair = {"predicted": float(of(ours[name])), "measured": float(of(measured[name]))}
            error = pair["predicted"] / pair["measured"] - 1
            entry = {**pair, "error": error}
            found.setdefault(name, {})[point] = {key: float(f"{v:.5g}") for key, v in entry.items()}
    return found


def described(server: Server) -> dict[str, Any]:
    """Predict a run, and return the figures with what was measured when."""
    about = json.loads((server.path / "run.json").read_text())
    return {
        "gpu": server.gpu,
        "model": about["model"].rpartition("/")[2],
        "engine": f"vLLM {about['vllm_version']}",
        "recorded": about["started_at"][:10],
        "requests": about["num_requests"],
        "settings": list(server.settings),
        "kernels": open_kernels(MODEL, server.device, BACKEND).description
        if server.has_kernels
        else None,
        "predictions": list(predictions(server, server.recorded())),
    }


def markdown(results: Mapping[str, Any]) -> str:
    """Return the table of the results page: predicted / measured (error)."""
    shown = {name: shown_metric(figures_by_evidence(results), name) for name in LATENCIES}
    heads = [f"{metric.title}: mean; p90" for metric in shown.values()]
    lines = [f"| GPU | from | {' | '.join(heads)} |", f"|{'---|' * (2 + len(heads))}"]
    for run in results["runs"]:
        for found in run["predictions"]:
            label = EVIDENCE[found["evidence"]]["label"]
            cells = " | ".join(_cell(name, found, metric.factor) for name, metric in shown.items())
            lines.append(f"| {run['gpu']} | {label} | {cells} |")
    return "\n".join(lines)


def _cell(metric: str, found: Mapping[str, Any], factor: float) -> str:
    if "missing" in found:
        return str(found["missing"])
    return "; ".join(
        f"{number(row['predicted'], factor)} / {number(row['measured'], factor)} "
        f"({100 * row['error']:+.1f} %)"
        for row in found["figures"][metric].values()
    )


def main(write: Annotated[bool, typer.Option(help="Renew the file of the page.")] = False) -> None:
    """Predict every run by every kind of evidence, and print the table."""
    if not GPU_RUNS.exists():
        raise SystemExit(f"{GPU_RUNS} is missing: real runs are not part of the repository")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    runs = [described(one) for one in SERVERS]
    found = {"date": today, "source": SOURCE, "load": LOAD, "runs": runs}
    if write:
        FILE.write_text(json.dumps(found, indent=1) + "\n")
    say(markdown(found))


if __name__ == "__main__":
    typer.run(main)
