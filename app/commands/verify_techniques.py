"""``servetwin verify --technique``: does a technique do on the bundled engine what it should?"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from servetwin.app.reports.progress import report_progress, saved
from servetwin.app.scenario.options.engine import require_engine
from servetwin.app.scenario.options.server import ServerOptions
from servetwin.workloads.errors import LoadTestError

if TYPE_CHECKING:
    from servetwin.app.verdict.effects.sides import EffectLoads, Sides
    from servetwin.app.verdict.effects.verification import EffectPlan, EffectVerification
    from servetwin.engine.serve_options import ServeOptions
    from servetwin.sim.step_times.profile import Profile
    from servetwin.sim.techniques.registry import Toggles
    from servetwin.sim.techniques.technique import Technique
    from servetwin.workloads.trace import Trace


@dataclass(frozen=True, slots=True)
class TechniqueTask:
    """What is to be verified: techniques, each by itself, on an engine without ``others``.

    ``trace`` is sent instead of the experiment of each technique, ``profile`` judged instead of a
    calibration of the engine without it.
    """

    options: "ServeOptions"
    techniques: tuple["Technique", ...]
    others: "Toggles"
    plan: "EffectPlan"
    trace: "Trace | None" = None
    profile: "Profile | None" = None

    def run(self) -> Iterator["EffectVerification"]:
        """Verify each technique on two engines; raise for one that cannot run before any starts."""
        from servetwin.app.verdict.effects.sides import measured_hardware, sides_of

        loads = [self._loads(technique) for technique in self.techniques]
        ways = max(getattr(technique, "ways", 1) for technique in self.techniques)
        hardware = measured_hardware(self.options.computation.threads, ways)
        sides = [sides_of(self.options, one, self.others, hardware) for one in self.techniques]
        profiles: dict[ServeOptions, Profile] = {}
        for one, load in zip(sides, loads, strict=True):
            known = self.profile or profiles.get(one.without.options)
            found = self._verify(one, load, known)
            profiles[one.without.options] = found.profile
            yield found

    def _verify(
        self, sides: "Sides", loads: "EffectLoads", known: "Profile | None"
    ) -> "EffectVerification":
        from servetwin.app.serving.engines import started_engine
        from servetwin.app.verdict.effects.verification import EffectVerifier

        verifier = EffectVerifier(
            sides,
            lambda side: started_engine(side.options),
            loads,
            self.plan,
            report_progress,
            known,
        )
        return verifier.run()

    def _loads(self, technique: "Technique") -> "EffectLoads":
        from servetwin.app.verdict.effects.sides import EffectLoads
        from servetwin.sim.techniques.technique import Experiment

        if self.trace is not None:
            return EffectLoads.of(self.trace)
        experiment = technique.experiment or Experiment()
        longest = self.options.policies.max_model_len
        try:
            return EffectLoads.of_experiment(experiment, self.plan.seed, longest)
        except LoadTestError as error:
            raise LoadTestError(f"technique {technique.name}: {error}") from error


def finish_effects(
    verifications: Iterator["EffectVerification"], out: Path | None, json: bool
) -> None:
    """Save and print each as it is done, then the summary; exit with the code of the worst."""
    from servetwin.app.reports.techniques.verification import (
        effect_lines,
        effects_json,
        summary_lines,
    )
    from servetwin.app.verdict.claims import EXIT_CODES, worst

    found: list[EffectVerification] = []
    with ExitStack() as kept:
        for one in verifications:
            found.append(one)
            if out:
                kept.enter_context(saved(one, out / one.sides.technique.name))
            if not json:
                typer.echo("\n".join(effect_lines(one)))
        typer.echo(effects_json(found) if json else "\n".join(summary_lines(found)))
        if out:
            report_progress(f"run folder: {out}")
        if code := EXIT_CODES[worst(one.outcome for one in found)]:
            raise typer.Exit(code)


def require_two_engines(given: Mapping[str, object]) -> None:
    """Raise ``LoadTestError`` for an option that has no meaning beside ``--technique``."""
    for name, value in given.items():
        if value:
            raise LoadTestError(
                f"--{name}: not with --technique, which compares two bundled engines of one policy "
                "under loads of its own"
            )


def techniques_task(
    options: "ServeOptions", served: ServerOptions, repeats: int, minutes: float, seed: int
) -> TechniqueTask:
    """Return the task of ``--technique`` and ``--without`` on an engine.

    Raises ``PolicyError`` for techniques that are unknown or named twice.
    """
    from servetwin.app.verdict.effects.verification import FEWEST_PAIRS, EffectPlan
    from servetwin.sim.techniques.registry import Toggles, find_technique

    served.check_absent("technique", "without")
    require_engine()
    tried = tuple(map(find_technique, served.techniques))
    plan = EffectPlan(max(repeats, FEWEST_PAIRS), minutes, seed=seed)
    return TechniqueTask(options, tried, Toggles.of((), served.without), plan)
