"""Verify techniques: does each do on the bundled engine what its formula predicts?"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import typer

from servetwin.app.reports.progress import report_progress, saved
from servetwin.app.reports.techniques.verification import effect_lines, effects_json, summary_lines
from servetwin.app.scenario.options.engine import require_engine
from servetwin.app.scenario.options.measured import VerifyOptions
from servetwin.app.serving.engines import started_engine
from servetwin.app.verdict.claims import EXIT_CODES, worst
from servetwin.app.verdict.effects.sides import EffectLoads, measured_hardware, sides_of
from servetwin.app.verdict.effects.verification import (
    PAIRS,
    EffectPlan,
    EffectVerification,
    EffectVerifier,
)
from servetwin.engine.serve_options import ServeOptions
from servetwin.sim.step_times.profile import Profile
from servetwin.sim.techniques.registry import Toggles, find_technique
from servetwin.sim.techniques.technique import Experiment, Technique
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.trace import Trace


@dataclass(frozen=True, slots=True)
class TechniqueTask:
    """What is to be verified: techniques, each by itself, on an engine without ``others``.

    ``trace`` is sent instead of the experiment of each technique, ``profile`` judged instead of a
    calibration of the engine without it.
    """

    options: ServeOptions
    techniques: tuple[Technique, ...]
    others: Toggles
    plan: EffectPlan
    trace: Trace | None = None
    profile: Profile | None = None

    def run(self) -> Iterator[EffectVerification]:
        """Verify each technique on two engines; raise for one that cannot run before any starts."""
        loads = [self._loads(technique) for technique in self.techniques]
        ways = max(getattr(technique, "ways", 1) for technique in self.techniques)
        hardware = measured_hardware(self.options.computation.threads, ways)
        sides = [sides_of(self.options, one, self.others, hardware) for one in self.techniques]
        profiles: dict[ServeOptions, Profile] = {}
        for one, load in zip(sides, loads, strict=True):
            known = self.profile or profiles.get(one.without.options)
            verification = EffectVerifier(
                one, lambda side: started_engine(side.options), load, self.plan, report_progress,
                known,
            ).run()  # fmt: skip
            profiles[one.without.options] = verification.profile
            yield verification

    def _loads(self, technique: Technique) -> EffectLoads:
        if self.trace is not None:
            return EffectLoads.of(self.trace)
        experiment = technique.experiment or Experiment()
        longest = self.options.policies.max_model_len
        try:
            return EffectLoads.of_experiment(experiment, self.plan.seed, longest)
        except LoadTestError as error:
            raise LoadTestError(f"technique {technique.name}: {error}") from error


def techniques_task(engine: ServeOptions, options: VerifyOptions) -> TechniqueTask:
    """Return the task of ``--technique`` and ``--without`` on an engine.

    Raises ``PolicyError`` for techniques that are unknown or named twice.
    """
    require_engine()
    server = options.server
    tried = tuple(map(find_technique, server.servers.techniques))
    plan = EffectPlan(options.repeats or PAIRS, seed=server.seed)
    return TechniqueTask(engine, tried, Toggles.of((), server.servers.without), plan)


def finish_effects(
    verifications: Iterator[EffectVerification], out: Path | None, json: bool
) -> None:
    """Save and print each as it is done, then the summary; exit with the code of the worst."""
    done: list[EffectVerification] = []
    with ExitStack() as saving:
        for one in verifications:
            done.append(one)
            if out:
                saving.enter_context(saved(one, out / one.sides.technique.name))
            if not json:
                typer.echo("\n".join(effect_lines(one)))
        typer.echo(effects_json(done) if json else "\n".join(summary_lines(done)))
        if out:
            report_progress(f"run folder: {out}")
        if code := EXIT_CODES[worst(one.outcome for one in done)]:
            raise typer.Exit(code)
