"""An engine whose effect of a technique is known: simulated cores behind the real HTTP server."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from servetwin.app.serving.engines import LiveEngine
from servetwin.app.serving.simulated import SimulatedEngine
from servetwin.app.serving.techniques import EngineSetup, plain_setup
from servetwin.app.verdict.effects.sides import EffectLoads, Side, Sides
from servetwin.engine.serve_options import ServeOptions
from servetwin.policies.config import PolicyConfig
from servetwin.sim.catalogue.hardware import Hardware
from servetwin.sim.step_times.profile import Profile, StepTimeFit
from servetwin.sim.step_times.step_time import NO_NOISE, StepTime
from servetwin.sim.techniques.registry import find_technique
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.live_server import LiveServer

CONFIG = PolicyConfig(kv_tokens=4096, max_model_len=512, max_seqs=8)
OPTIONS = ServeOptions("small", CONFIG)
HARDWARE = Hardware(
    name="a slow device",
    peak_flops_per_s={"fp32": 1e12, "bf16": 1e12, "int8": 1e12},
    memory_bytes_per_s=1.2e10,
    memory_bytes=64e9,
    compute_units=1,
    link_bytes_per_s=1e10,
    host_link_bytes_per_s=1e10,
    kernel_launch_s=0.0,
    source="made up: reads the weights of the model small in 7 ms",
)
RUNNER: dict[str, Any] = {
    "model": "small", "kv_bytes": 4096 * 8192, "kv_tokens": 4096, "weight_bytes": 80_000_000,
}  # fmt: skip
PROFILE = Profile(
    name="known",
    origin="measured here",
    machine={},
    engine=RUNNER,
    policies=CONFIG.as_dict(),
    layouts={
        "paged": StepTimeFit(
            coefficients={"constant": 8e-3, "decode_sequences": 2e-4, "rows_from_0": 5e-5}
        )
    },
)
LOADS = EffectLoads.of(Trace(tuple(Request(str(i), 0.0, 20, 10) for i in range(8)), "known"))


def sides(technique: str = "weight-int8") -> Sides:
    """Return both sides of a technique that the engine need not run: its core is simulated."""
    found = find_technique(technique)
    off, on = found.sides(plain_setup(EngineSetup.of(OPTIONS), HARDWARE))
    policies = [replace(side.policies, kv_tokens=CONFIG.kv_tokens) for side in (off, on)]
    without, with_it = (
        Side(setup, replace(OPTIONS, policies=config))
        for setup, config in zip((off, on), policies, strict=True)
    )
    return Sides(found, without, with_it)


@contextmanager
def simulated(
    folder: Path,
    step_time: StepTime,
    config: PolicyConfig = CONFIG,
    **runner: float,
) -> Iterator[LiveEngine]:
    """Serve a simulated core with these step times, and yield where it is."""
    folder.mkdir()
    log = folder / "steps.jsonl"
    facts = {**RUNNER, **runner}
    core = SimulatedEngine("small", config, step_time, NO_NOISE, facts, step_log=log)
    with LiveServer(config, build=core.build) as server:
        yield LiveEngine(str(server.client.base_url).rstrip("/"), log)
