"""Power and size of the verdict on the bundled engine: how often it refutes what, and by mistake.

Each trial calibrates anew, with a seed of its own, and load-tests at 70 and 85 % of the predicted
capacity. The same measurements judge the profile as it is, and with every step scaled::

    python -m tests.benchmarks.power --trials 20

The steps of ``--simulated PROFILE`` take the times of a profile instead of computing a model, on a
machine that cannot keep its speed; process, HTTP, step log, calibration and load tests stay real.

One line per trial and load, then a table: of the true profile at most one of twenty may be refuted,
of +8 % at 70 % at least eighteen, of +4 % at 85 % at least fourteen. Below it: how often a load
test lay inside the predicted interval (wanted: 85 to 95 %), and the median half width of that
interval (wanted at 70 %: at most 10 % for mean TTFT, 4 % for mean TPOT).
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import typer

from servetwin.app.calibration.step_log import StepLogCalibrator
from servetwin.app.reports.claims import comparison_table
from servetwin.app.scenario.options.engine import EngineChoice
from servetwin.app.serving.engines import LiveEngine, started_engine
from servetwin.app.verdict.claims import Outcome
from servetwin.app.verdict.two_claims import TwoClaims
from servetwin.app.verdict.verification import Level, Plan
from servetwin.app.verdict.verifier import Verifier
from servetwin.policies.config import PolicyConfig
from servetwin.sim.records.metrics import figure
from servetwin.sim.step_times.profile import Profile
from servetwin.workloads.reading import sample_trace
from servetwin.workloads.transform import limit
from tests.benchmarks.black_box import say, served

SCALES = (1.0, 1.04, 1.08)
UTILISATIONS = (0.7, 0.85)
SERVED_SETTINGS = ("batching", "kv", "prefix_cache", "kv_tokens", "max_model_len", "max_seqs")
COVERED = ("tpot_s.mean", "ttft_s.mean", "ttft_s.p90")


@contextmanager
def simulated_engine(profile: str, seed: int, config: PolicyConfig) -> Iterator[LiveEngine]:
    """The bundled engine with the step times of a profile, in real time."""
    settings = " ".join(f"--set {name}={getattr(config, name)}" for name in SERVED_SETTINGS)
    with TemporaryDirectory() as folder:
        log = Path(folder) / "steps.jsonl"
        with served(f"--simulated {profile} --seed {seed} --step-log {log} {settings}") as url:
            yield LiveEngine(url, log)


def engine(
    config: PolicyConfig, choice: EngineChoice, simulated: str | None
) -> AbstractContextManager[LiveEngine]:
    """The bundled engine, with the step times of a profile where ``simulated`` names one."""
    if simulated:
        return simulated_engine(simulated, choice.seed, config)
    return started_engine(replace(choice.options(config), beat=True))


def rejudged(level: Level, profile: Profile, scale: float) -> Outcome:
    """Judge the measurements of a level with a profile whose steps take ``scale`` times as long."""
    if scale == 1.0:
        return level.claims.comparison.outcome
    limits = {
        row.metric: row.limit for row in level.claims.comparison.metrics if row.limit is not None
    }
    scaled = profile.scaled(scale)
    return TwoClaims.of(level.measured, level.trace, scaled, limits, 0).comparison.outcome


def coverage(levels: Sequence[Level]) -> str:
    """How many load tests lay inside the predicted interval, and how wide that was, by metric."""
    cells = []
    for metric in COVERED:
        of = [(level.prediction.intervals[metric], level.measured) for level in levels]
        inside = [
            interval.low <= value <= interval.high
            for interval, measured in of
            for run in measured
            if (value := figure(run.summary(), metric)) is not None
        ]
        halves = [(one.high - one.low) / 2 / one.value for one, _ in of]
        cells.append(f"{metric} {sum(inside)} of {len(inside)}, +-{100 * np.median(halves):.1f} %")
    return "; ".join(cells)


def main(
    trials: Annotated[int, typer.Option(min=1)] = 20,
    first: Annotated[int, typer.Option(help="Seed of the first trial.")] = 0,
    requests: int = 240,
    model: str = "base",
    simulated: Annotated[str | None, typer.Option(help="Profile of a simulated engine.")] = None,
    replications: int = 200,
    out: Annotated[Path | None, typer.Option(help="Folder for the verifications.")] = None,
) -> None:
    """Run the trials and print the table."""
    trace, counts = limit(sample_trace(), requests), Counter[tuple[float, float, Outcome]]()
    levels: dict[float, list[Level]] = {utilisation: [] for utilisation in UTILISATIONS}
    for trial in range(first, first + trials):
        plan = Plan(UTILISATIONS, replications=replications, seed=trial)
        began_s = time.monotonic()
        with engine(PolicyConfig(), EngineChoice(model, seed=trial), simulated) as live:
            calibrator = StepLogCalibrator(live, trial)
            found = Verifier(calibrator, trace, plan, lambda line: None).run()
        if out:
            found.save(out / f"trial-{trial}")
        for level in found.levels:
            levels[level.prediction.utilisation].append(level)
            outcomes = {s: rejudged(level, found.forecast.profile, s) for s in SCALES}
            counts.update(
                (level.prediction.utilisation, s, outcome) for s, outcome in outcomes.items()
            )
            errors = "".join(
                f"\n{line}" for line in comparison_table(level.claims.comparison.metrics)
            )
            say(
                f"trial {trial}, {100 * level.prediction.utilisation:.0f} %: "
                f"{len(level.measured)} tests, "
                f"{time.monotonic() - began_s:.0f} s; {outcomes}; "
                f"{'; '.join(level.claims.comparison.doubts)}{errors}"
            )
    for utilisation in UTILISATIONS:
        for scale in SCALES:
            row = {o: counts[utilisation, scale, o] for o in ("holds", "refuted", "cannot tell")}
            say(f"{100 * utilisation:.0f} %, steps x {scale:.2f}: {row}")
        say(f"{100 * utilisation:.0f} %, inside: {coverage(levels[utilisation])}")


if __name__ == "__main__":
    typer.run(main)
