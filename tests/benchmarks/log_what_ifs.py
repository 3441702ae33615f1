"""What-ifs from a calibrated log, against a truth that is known.

The truth is a server whose steps take the layer times of a real GPU (``../shared/gpu``), under the
limits of its recorded run. Its simulated stamps are the log: calibrated from with and without a
prior, the profile then predicts the server under other limits and rates, which it has not seen::

    python -m tests.benchmarks.log_what_ifs

A line per what-if: predicted against true mean TTFT, TPOT and E2E in per cent, and whether the
truth lies inside the interval. Wanted: within 6 % with a prior, inside in 80 % of the cells.
"""

from dataclasses import replace
from pathlib import Path

import typer

from servetwin.app.calibration.recorded import RecordedCalibration, calibrate_recorded
from servetwin.loadtest.recorded.formats import ENGINE_STAMPS
from servetwin.loadtest.recorded.reading import read_recording
from servetwin.loadtest.recorded.recorded_run import RecordedRun, as_recorded_run
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.presets import find_preset
from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.core.simulate import simulate
from servetwin.sim.experiments.predict import predict
from servetwin.sim.experiments.stamp_fit import FITTED
from servetwin.sim.records.metrics import LATENCIES
from servetwin.sim.step_times.linearised import linearised
from servetwin.sim.step_times.step_time import StepTime
from servetwin.sim.step_times.tables import LayerTable
from servetwin.sim.step_times.tables.kernel_library import installed_package, open_kernels
from servetwin.sim.step_times.tables.layer_bundle import read_layer_bundle
from servetwin.sim.techniques.registry import build_setup
from servetwin.workloads.trace import Trace
from servetwin.workloads.transform import at_rate
from tests.benchmarks.black_box import say
from tests.support.paths import GPU_RUNS

GPU = GPU_RUNS / "rtxpro6000-llama-3.1-8b"
BASE = PolicyConfig(
    **{
        **find_preset("vllm-v1").policies,
        "max_seqs": 128,
        "token_budget": 2048,
        "kv_tokens": 1 << 40,
        "max_model_len": 32768,
    }
)
WHAT_IFS = {
    "as recorded": (BASE, 1.0),
    "max_seqs 32": (replace(BASE, max_seqs=32), 1.0),
    "max_seqs 256": (replace(BASE, max_seqs=256), 1.0),
    "budget 512": (replace(BASE, token_budget=512), 1.0),
    "budget 8192": (replace(BASE, token_budget=8192), 1.0),
    "a tenth of the rate": (BASE, 0.1),
    "1.3 times the rate": (BASE, 1.3),
}


def truth(trace: Trace, config: PolicyConfig, table: StepTime) -> dict[str, float]:
    """The mean latencies of the server."""
    run = simulate(trace, build_scheduler(config), table)
    return {name: float(run.requests[name].mean()) for name in LATENCIES}


def logged(trace: Trace, table: StepTime) -> RecordedRun:
    """The log of the server under ``BASE``: its stamps, as a recorded run."""
    run = simulate(trace, build_scheduler(BASE), table)
    run.kind = "loadtest"
    run.scenario = {"trace": trace.source, "recorded_by": ENGINE_STAMPS}
    return RecordedRun(run, trace)


def main(replications: int = 100) -> None:
    """Calibrate with and without a prior, and print the tables."""
    if not Path(GPU).exists():
        raise SystemExit(f"{GPU} is missing: real layer times are not part of the repository")
    trace = as_recorded_run(read_recording(GPU / "measured.jsonl"), "measured").trace
    table = LayerTable(read_layer_bundle(GPU / "layers"), find_model("llama-3.1-8b"))
    recorded = logged(trace, table)
    sheet = build_setup("llama-3.1-8b", "rtx-pro-6000").server().model()
    priors = {"no prior": None, "data sheet": linearised(sheet, FITTED)}
    if installed_package():
        kernels = open_kernels("llama-3.1-8b", "rtx-pro-6000", "vllm")
        priors["kernel tables"] = linearised(kernels, FITTED)
    for name, prior in priors.items():
        found = calibrate_recorded(recorded, BASE, prior=prior)
        say(f"\n{name}: {found.fit.simulations} simulations, identified {found.fit.identified}")
        show(found, recorded, trace, table, replications)


def show(
    found: RecordedCalibration,
    recorded: RecordedRun,
    trace: Trace,
    table: StepTime,
    replications: int,
) -> None:
    """Print a line per what-if, and how many truths lay inside."""
    profile, inside, cells, worst = found.profile("log", recorded, None), 0, 0, 0.0
    for name, (config, rate) in WHAT_IFS.items():
        load = at_rate(trace, rate * trace.rate_per_s)
        true = truth(load, config, table)
        predicted = predict(load, config, profile, replications=replications)
        shown = []
        for latency, value in true.items():
            interval = predicted.interval(f"{latency}.mean")
            assert interval is not None
            error, covered = interval.value / value - 1, interval.low <= value <= interval.high
            shown.append(f"{latency} {100 * error:+.1f} %{' inside' if covered else ''}")
            inside, cells, worst = inside + covered, cells + 1, max(worst, abs(error))
        say(f"{name:<22}{', '.join(shown)}")
    say(f"inside {inside} of {cells}; worst error {100 * worst:.1f} %")


if __name__ == "__main__":
    typer.run(main)
