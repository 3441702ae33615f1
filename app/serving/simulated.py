"""Serve the simulator in real time: from a server model to a core behind the engine's HTTP API."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from servetwin.app.serving.simulated_core import Answers, SimulatedCore
from servetwin.engine.core.clock import CoreClock
from servetwin.engine.core.core import EngineCore
from servetwin.engine.core.facts import core_facts
from servetwin.engine.core.step_log import StepLogFile
from servetwin.engine.models.model_config import PRESETS
from servetwin.policies.config import PolicyConfig
from servetwin.policies.registry import build_scheduler
from servetwin.sim.step_times.step_time import NoiseSample, StepNoise, StepTime
from servetwin.workloads.errors import EngineError

if TYPE_CHECKING:
    from servetwin.app.scenario.options.policy import PolicyOptions
    from servetwin.app.scenario.options.server import ServerOptions
    from servetwin.sim.step_times.server_model import ServerModel

VOCAB_SIZE = 32_000
"""Vocabulary of a model that is none of the engine's presets."""


@dataclass(frozen=True, slots=True)
class SimulatedEngine:
    """What the core's process needs to build a simulated core.

    ``runner`` is what ``GET /servetwin/engine`` answers about the machine, ``noise`` a sample of
    factors on step durations.
    """

    model: str
    policies: PolicyConfig
    step_time: StepTime
    noise: NoiseSample
    runner: dict[str, Any]
    seed: int = 0
    step_log: Path | None = None

    def build(self, clock: CoreClock) -> tuple[EngineCore, dict[str, Any]]:
        """Return the core on ``clock`` and the facts about it; call it in the core's process.

        Raises ``EngineError`` where the step log cannot be written.
        """
        scheduler = build_scheduler(self.policies)
        vocab_size = PRESETS[self.model].vocab_size if self.model in PRESETS else VOCAB_SIZE
        facts = core_facts(
            self.model, vocab_size, self.policies, scheduler.memory, self.runner, clock,
            self.step_log,
        )  # fmt: skip
        core = SimulatedCore(
            scheduler,
            Answers(vocab_size, self.seed),
            self.step_time,
            StepNoise(self.noise, np.random.default_rng(self.seed)),
            clock=clock,
            prefix_cache=self.policies.prefix_cache,
            log=StepLogFile(self.step_log, facts) if self.step_log else None,
        )
        return core, facts


def simulated_engine(
    servers: "ServerOptions",
    policies: "PolicyOptions",
    *,
    seed: int = 0,
    step_log: Path | None = None,
) -> SimulatedEngine:
    """Return the engine that the options describe; ``policies`` win over those of its profile.

    The API latency of a profile is left out: a real HTTP process stands before the core.
    Raises ``PolicyError`` for impossible policies, ``ProfileError`` where their KV layout was not
    measured, ``EngineError`` for what a core cannot serve.
    """
    base = policies.laid_on(servers.servers()).scenario()
    server, config = base.profile, base.policies
    if base.cluster.splits:
        raise EngineError(
            "technique prefill-decode-split cannot be served: it needs several servers; use "
            "servetwin replay"
        )
    if config.batching == "speculative":
        raise EngineError(
            "batching 'speculative' cannot be served: a core sends one token of a sequence per "
            "step; use servetwin replay, or batching: continuous"
        )
    memory = build_scheduler(config).memory
    steps = server.step_time(memory.layout)
    machine = _machine(server)
    layout = {"layout": memory.layout, "block_tokens": memory.block_tokens}
    return SimulatedEngine(
        str(machine.get("model", servers.model or server.name)),
        config,
        steps.model(),
        steps.noise_factors(),
        {**machine, **layout, "simulated": server.describe()},
        seed,
        step_log,
    )


def _machine(server: "ServerModel") -> dict[str, Any]:
    """Return what a profile says of the engine that it was measured on."""
    from servetwin.sim.step_times.profile import Profile

    return server.engine if isinstance(server, Profile) else {}
