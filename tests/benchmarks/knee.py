"""How near the knee that a sweep finds on a live engine lies to the one that the simulator finds.

``python -m tests.benchmarks.knee --trials 2`` serves the bundled engine with the step times of a
profile (process, HTTP, scheduler and load tests are real; a busy machine cannot change the steps),
and searches the knee with ``servetwin loadtest --sweep slo``. With ``--real base`` the engine
computes that model, and is first calibrated as ``servetwin verify`` does it. Each trial has a trace
and noise of its own. The simulator's knee is the mean over draws of the noise on the very same
trace. Beside it: the completions per second with all requests at once, which ``verify`` calls the
capacity.

Wanted of every trial: both within 5 %. Some 10 minutes a trial; let nothing else run.
"""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from servetwin.app.calibration.step_log import StepLogCalibrator
from servetwin.app.scenario.options.engine import EngineChoice
from servetwin.app.scenario.options.load import LoadChoice
from servetwin.app.serving.engines import LiveEngine
from servetwin.app.verdict.verification import ROUNDS
from servetwin.loadtest.report.limits import parse_slo
from servetwin.policies.config import PolicyConfig
from servetwin.sim.experiments.capacity import (
    Replications,
    SLOTarget,
    find_capacity,
    saturation_rate_per_s,
)
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.step_times.profile import Profile, load_profile
from servetwin.workloads.readers.native import write_trace
from servetwin.workloads.trace import Trace
from tests.benchmarks.black_box import say
from tests.benchmarks.power import engine

SLO, WANTED = "ttft=500ms,tpot=60ms", 0.9
NOISE_SEEDS = 20
WITHIN = 0.05


def trace_of(seed: int, requests: int) -> Trace:
    """Poisson arrivals of short prompts and answers, so that a level lasts less than a minute."""
    return LoadChoice(
        arrivals="poisson", rate_per_s=1.0, limit=requests, seed=seed,
        prompt_tokens="lognormal:mean=64,cv=0.8",
        output_tokens="lognormal:mean=16,cv=0.5,max=64",
    ).trace()  # fmt: skip


def simulated_knee_per_s(trace: Trace, server: Profile) -> float:
    """The capacity for the SLO on the fitted step times, over draws of their noise."""
    scenario = Scenario(server.policy_config(), server)
    target = SLOTarget(parse_slo(SLO), WANTED)
    found = (
        find_capacity(trace, scenario, target, seed=seed, replications=Replications(0))
        for seed in range(NOISE_SEEDS)
    )
    return fmean(capacity.rate_per_s.value for capacity in found)


def calibrated(live: LiveEngine, trace: Trace, seed: int) -> Profile:
    """The profile of an engine, by its step log."""
    calibrator = StepLogCalibrator(live, seed, lambda line: None)
    calibrator.identify(ROUNDS, trace)
    return calibrator.profile()


def swept(url: str, trace: Path, out: Path, more: str) -> dict[str, Any]:
    """The sweep as JSON."""
    command = [sys.executable, "-c", "from servetwin.app.cli import main; main()", "loadtest", url]
    options = f"--sweep slo --slo {SLO} --attainment {WANTED} --json --overwrite {more}"
    done = subprocess.run(
        [*command, "--trace", str(trace), "--out", str(out), *shlex.split(options)],
        stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def trial(seed: int, requests: int, simulated: str, real: str | None, out: Path, more: str) -> bool:
    """Search one knee, print how it compares, and return whether it is near enough."""
    requested, path = trace_of(seed, requests), out / f"trace-{seed}.jsonl"
    write_trace(requested, path)
    config = PolicyConfig() if real else load_profile(simulated).policy_config()
    choice = EngineChoice(real or "base", seed=seed)
    with engine(config, choice, None if real else simulated) as live:
        server = calibrated(live, requested, seed) if real else load_profile(simulated)
        server.save(out / f"profile-{seed}.json")
        found = swept(live.url, path, out / f"trial-{seed}", more)
    if not found["knee"] or found["knee"]["rate_per_s"] is None:
        say(f"trial {seed}: no knee; ended: {found['ended']}")
        return False
    knee, expected = found["knee"], simulated_knee_per_s(requested, server)
    capacity = saturation_rate_per_s(requested, server.policy_config(), server)
    at_once = found["levels"][1]["figures"]["completed_per_s"]
    errors = (knee["rate_per_s"] / expected - 1, at_once / capacity - 1)
    repeated = sum(level["attempts"] - 1 for level in found["levels"])
    say(
        f"trial {seed}: knee {knee['rate_per_s']:.3f}/s ({knee['low_per_s'] or 0:.3f} to "
        f"{knee['high_per_s'] or float('inf'):.3f}), simulated {expected:.3f}/s, {errors[0]:+.1%}; "
        f"all at once {at_once:.3f}/s, simulated {capacity:.3f}/s, {errors[1]:+.1%}; "
        f"{len(found['levels'])} levels, {repeated} repeated; ended: {found['ended']}"
    )
    return bool(max(map(abs, errors)) <= WITHIN)


def main(
    trials: Annotated[int, typer.Option(min=1)] = 2,
    first: Annotated[int, typer.Option(help="Seed of the first trial.")] = 0,
    requests: int = 400,
    simulated: Annotated[str, typer.Option(help="Profile of a simulated engine.")] = "base-cpu",
    real: Annotated[str | None, typer.Option(help="Model of a real engine instead.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the sweeps.")] = None,
    more: Annotated[str, typer.Option(help="More options of the sweeps.")] = "",
) -> None:
    """Run the trials; the exit code is 1 where one is not near enough."""
    with TemporaryDirectory() as temporary:
        folder = out or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        seeds = range(first, first + trials)
        near = [trial(seed, requests, simulated, real, folder, more) for seed in seeds]
    say(f"{sum(near)} of {trials} within {WITHIN:.0%}")
    raise typer.Exit(0 if all(near) else 1)


if __name__ == "__main__":
    typer.run(main)
