"""What a simulated request costs, in bare SimPy timeout events of the same minute.

``python -m tests.benchmarks.simulator`` prints a table. All on the profile
llama-3-8b-h100, continuous + paged; seconds are of the event loop alone (``simulation.wall_s``)
unless they are said to be all-in.
"""

import gc
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import simpy
import typer

from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.experiments.capacity import saturation_rate_per_s
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.acceptance import Acceptance, Chain
from servetwin.sim.step_times.profile import load_profile
from servetwin.sim.step_times.roofline.deployment import Deployment, Drafting, Kernels
from servetwin.sim.step_times.roofline.server import RooflineServer
from servetwin.workloads.generators.arrivals import PoissonArrivals
from servetwin.workloads.generators.generate import WorkloadSpec, generate
from servetwin.workloads.generators.lengths import IndependentLengths, LognormalTokens
from servetwin.workloads.readers.native import write_trace
from servetwin.workloads.reading import read_trace
from servetwin.workloads.trace import Trace
from servetwin.workloads.transform import at_rate
from tests.support.paths import OF_KERNELS, SHEET_PROFILE, TRACES

CONVERSATION = TRACES / "azure" / "AzureLLMInferenceTrace_conv.csv.gz"
MOONCAKE = TRACES / "mooncake" / "conversation_trace.jsonl.gz"
PROFILE = load_profile(SHEET_PROFILE)
NOISY_PROFILES = (OF_KERNELS, "base-cpu")
"""A device whose profile holds the whole load, and one that is far outside what was measured."""
LONGEST = 1 << 17
BARE_EVENTS = 200_000
PAIRS = 5
DEFAULT_KERNELS = Kernels()
LENGTHS = IndependentLengths(
    LognormalTokens.from_mean(496, 0.8, max_tokens=4096),
    LognormalTokens.from_mean(198, 0.6, max_tokens=4096),
)
SIZES = (10_000, 100_000, 1_000_000)


@dataclass(frozen=True)
class Case:
    """A load, and what runs it."""

    trace: Trace
    scenario: Scenario

    @classmethod
    def of(cls, trace: Trace, **policies: Any) -> "Case":
        """Under the profile's policies, changed as asked, for requests of any length."""
        settings = {"max_model_len": LONGEST, **policies}
        return cls(trace, Scenario(replace(PROFILE.policy_config(), **settings), PROFILE))

    def run(self) -> Run:
        return run_once(self.trace, self.scenario)


def poisson(requests: int, rate_per_s: float) -> Case:
    """Log-normal lengths of mean 496 and 198 (CV 0.8 and 0.6, at most 4,096 each)."""
    return Case.of(generate(WorkloadSpec(requests, PoissonArrivals(rate_per_s), LENGTHS), 0))


def conversation() -> Case:
    """The Azure conversation trace at 70 % of what the server can sustain."""
    trace = read_trace(CONVERSATION)
    case = Case.of(trace)
    capacity_per_s = saturation_rate_per_s(trace, case.scenario.policies, PROFILE)
    return Case.of(at_rate(trace, 0.7 * capacity_per_s))


def mooncake() -> Case:
    """The Mooncake conversation trace as it came, with the prefix cache."""
    return Case.of(read_trace(MOONCAKE), prefix_cache=True)


def roofline(
    rate_per_s: float,
    model: str = "llama-3-8b",
    kernels: Kernels = DEFAULT_KERNELS,
    *,
    drafting: Drafting | None = None,
    acceptance: Acceptance | None = None,
) -> Case:
    """Return ``poisson`` on a device by its data sheet, under the policies of the profile.

    By default it is the model and the device of the profile.
    """
    case = poisson(20_000, rate_per_s)
    deployment = Deployment(
        find_model(model), find_hardware("h100"), kernels=kernels, drafting=drafting
    )
    server = RooflineServer(deployment, acceptance=acceptance)
    policies = case.scenario.policies
    if acceptance is not None:
        rows = acceptance.rows - 1
        policies = replace(policies, draft_rows=rows)
    return replace(case, scenario=replace(case.scenario, profile=server, policies=policies))


def speculative(rate_per_s: float) -> Case:
    """Return drafts of four tokens from a small model of the same device, 80 % of them accepted."""
    drafting = Drafting(find_model("llama-68m"), step_rows=(1, 1, 1, 1))
    return roofline(rate_per_s, drafting=drafting, acceptance=Chain(0.8, 4))


CASES: dict[str, tuple[Callable[[], Case], Path | None]] = {
    "20,000 Poisson 20/s": (lambda: poisson(20_000, 20.0), None),
    "20,000 Poisson 4/s": (lambda: poisson(20_000, 4.0), None),
    "Azure conversation 70 %": (conversation, CONVERSATION),
    "Mooncake, prefix cache": (mooncake, MOONCAKE),
    "roofline, Poisson 20/s": (lambda: roofline(20.0), None),
    "roofline, Poisson 4/s": (lambda: roofline(4.0), None),
    "window, Poisson 20/s": (lambda: roofline(20.0, "mistral-7b"), None),
    "split, Poisson 20/s": (lambda: roofline(20.0, kernels=Kernels(occupancy="split")), None),
    "drafts, Poisson 4/s": (lambda: speculative(4.0), None),
}
"""How to make each case, and the public trace it needs."""


def event_s(events: int = BARE_EVENTS) -> float:
    """Seconds of one bare SimPy event: a process that does nothing but wait."""
    env = simpy.Environment()
    env.process(_waits(env, events))
    gc.disable()
    started_s = time.perf_counter()
    env.run()
    elapsed_s = time.perf_counter() - started_s
    gc.enable()
    return elapsed_s / events


def _waits(env: simpy.Environment, times: int) -> Generator[simpy.Event]:
    for _ in range(times):
        yield env.timeout(1.0)


@dataclass
class Costs:
    """Interleaved pairs of bare events and simulations, so that a slow minute slows both."""

    case: Case
    events_s: list[float] = field(default_factory=list)
    requests_s: list[float] = field(default_factory=list)

    def time_events(self) -> None:
        self.events_s.append(event_s())

    def simulate(self) -> Run:
        run = self.case.run()
        self.requests_s.append(run.extra["simulation"]["wall_s"] / len(self.case.trace))
        return run

    @property
    def events_per_request(self) -> float:
        """The median over the pairs."""
        pairs = zip(self.requests_s, self.events_s, strict=True)
        return median(request_s / event_s for request_s, event_s in pairs)

    def line(self, name: str) -> str:
        request_s = median(self.requests_s)
        return (
            f"{name:<26}{len(self.case.trace):>10,}{1e6 * request_s:>10.1f}"
            f"{1 / request_s:>12,.0f}{self.events_per_request:>10.1f}"
        )


HEADER = f"{'':<26}{'requests':>10}{'us each':>10}{'requests/s':>12}{'events':>10}"


def costs(case: Case, pairs: int = PAIRS) -> Costs:
    """Measure a case."""
    found = Costs(case)
    for _ in range(pairs):
        found.time_events()
        found.simulate()
    return found


def whole_process(requests: int, module: str = "tests.benchmarks.simulator") -> dict[str, float]:
    """Generate, simulate and summarize in a process of its own, which says what that took."""
    command = [sys.executable, "-m", module, "--requests", str(requests)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def start_to_result(profile: str, requests: int = 1_000) -> dict[str, float]:
    """Run ``servetwin replay`` in its own process, with the intervals of a profile with noise.

    Seconds to its result on the clock and of the processor, imports included.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.jsonl"
        write_trace(poisson(requests, 20.0).trace, path)
        replay = [
            sys.executable,
            "-m",
            "servetwin.app.cli",
            "replay",
            str(path),
            "--profile",
            profile,
        ]
        started_s, before_s = time.perf_counter(), _children_cpu_s()
        done = subprocess.run([*replay, "--json"], capture_output=True, text=True, check=True)
        elapsed_s, cpu_s = time.perf_counter() - started_s, _children_cpu_s() - before_s
    found = json.loads(done.stdout)
    return {
        "requests": requests,
        "finished": found["requests"]["finished"],
        "intervals": len(found["intervals"]),
        "seconds": elapsed_s,
        "cpu_s": cpu_s,
        "events": cpu_s / event_s(),
    }


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def start_line(profile: str, figures: dict[str, float]) -> str:
    """One line about ``start_to_result``."""
    return (
        f"{profile}: {figures['requests']:,} requests with {figures['intervals']} intervals, "
        "start to result: "
        f"{figures['seconds']:.2f} s, {figures['cpu_s']:.2f} s of the processor "
        f"({figures['events']:,.0f} events)"
    )


def own_figures(make: Callable[[], Case]) -> tuple[dict[str, float], dict[str, Any]]:
    """Return what it took to make, simulate and summarize a case, and the summary."""
    started_s, bare_s = time.perf_counter(), event_s()
    case = make()
    summary, requests = case.run().summary(), len(case.trace)
    wall_s, used = summary["simulation"]["wall_s"], resource.getrusage(resource.RUSAGE_SELF)
    figures = {
        "requests": requests,
        "finished": summary["requests"]["finished"],
        "wall_s": wall_s,
        "all_in_s": time.perf_counter() - started_s,
        "cpu_s": used.ru_utime + used.ru_stime,
        "events_per_request": wall_s / requests / bare_s,
        "peak_bytes": 1024 * used.ru_maxrss,
    }
    return figures, summary


def size_line(figures: dict[str, float]) -> str:
    """One line of the table of sizes."""
    requests = int(figures["requests"])
    return (
        f"{requests:>10,}{1e6 * figures['wall_s'] / requests:>10.1f}"
        f"{figures['events_per_request']:>10.1f}{figures['wall_s']:>10.2f}"
        f"{figures['all_in_s']:>10.2f}{figures['peak_bytes'] / 1e9:>10.2f}"
    )


SIZE_HEADER = (
    f"{'requests':>10}{'us each':>10}{'events':>10}{'loop s':>10}{'all-in s':>10}{'peak GB':>10}"
)


def main(
    requests: Annotated[int | None, typer.Option(help="Only this size, as JSON.")] = None,
    largest: Annotated[int, typer.Option(help="Leave out sizes above.")] = SIZES[-1],
) -> None:
    """Print what a request costs, case by case and size by size."""
    if requests is not None:
        figures, _ = own_figures(lambda: poisson(requests, 20.0))
        typer.echo(json.dumps(figures))
        return
    typer.echo(HEADER)
    for name, (make, needs) in CASES.items():
        if needs is None or needs.is_file():
            typer.echo(costs(make()).line(name))
    for profile in NOISY_PROFILES:
        typer.echo("\n" + start_line(profile, start_to_result(profile)))
    typer.echo(f"\n{SIZE_HEADER}   (Poisson 20/s, a process each)")
    for size in SIZES:
        if size <= largest:
            typer.echo(size_line(whole_process(size)))


if __name__ == "__main__":
    typer.run(main)
