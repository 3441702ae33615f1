"""``servetwin verify``: calibrate, predict, load-test and judge, on one engine per policy."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.commands.calibrate import MEASURED_SETTINGS
from app.scenario.black_box_options import BlackBoxOptions
from app.scenario.common_options import Json, RunFolder, Seed
from app.scenario.endpoint_options import EndpointOptions, ModelOrPreset
from app.scenario.engine_options import EngineChoice, require_engine
from app.scenario.option_groups import Only, takes_options
from app.scenario.policy_options import PolicyOptions
from app.scenario.settings import policies_named
from app.scenario.trace_options import TraceOptions
from app.text.progress import report_progress
from app.text.saving import saved

if TYPE_CHECKING:
    from app.twin.engines import LiveEngine
    from app.twin.verification import Plan, Verification
    from policies.config import PolicyConfig
    from workloads.trace import Trace


PARTS_OF_A_TRACE = (
    "reader", "max_bad_rows", "start_s", "end_s", "limit", "prompt_scale", "output_scale",
)  # fmt: skip


@takes_options
def verify(
    endpoint: Annotated[EndpointOptions, Only("api", "prompt")],
    limits: BlackBoxOptions,
    settings: Annotated[PolicyOptions, Only("reservation", *MEASURED_SETTINGS, "wait_limit_ms")],
    part: Annotated[TraceOptions, Only(*PARTS_OF_A_TRACE)],
    engine: Annotated[EngineChoice, Only("device", "dtype", "threads")],
    trace: Annotated[
        Path | None, typer.Option(help="Trace to predict; default the bundled sample.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="A running endpoint; default: start the bundled engine.")
    ] = None,
    as_black_box: Annotated[
        bool,
        typer.Option(
            "--black-box",
            "--outside",
            help="With --url: use no step log, only what clients see (so for foreign endpoints).",
            rich_help_panel=EndpointOptions.PANEL,
        ),
    ] = False,
    policy: Annotated[
        tuple[str, ...],
        typer.Option(help="Such as static+contiguous or continuous+paged+prefix; repeatable."),
    ] = (),
    model: ModelOrPreset = None,
    utilisation: Annotated[
        float | None,
        typer.Option(
            help="Share of the predicted capacity offered (0.7; of a black box 0.5, then 0.7).",
            min=0.05,
            max=0.95,
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(help="Load tests per policy.", min=1)] = 2,
    seed: Seed = 0,
    out: RunFolder = None,
    json: Json = False,
) -> None:
    """Predict a trace on the engine, load-test it, and exit with 1 if the prediction failed.

    An endpoint without a step log that can be read here is calibrated as a black box.
    """
    from app.twin.verification import (
        BLACK_BOX_ROUNDS,
        BLACK_BOX_UTILISATIONS,
        STEP_LOG_UTILISATIONS,
        Plan,
    )
    from policies.config import PolicyConfig

    requests = replace(part, path=trace, seed=seed).read_or_sample()
    base = settings.over(PolicyConfig())
    labels = policy or ("continuous+paged",)
    configs = [policies_named(label, base, "--policy") for label in labels]
    shares = (utilisation,) if utilisation is not None else None
    plan = Plan(shares or STEP_LOG_UTILISATIONS, repeats, seed=seed)
    if url is None:
        choice = replace(engine, model=model or "base", seed=seed)
        finish(verify_policies(configs, choice, requests, plan, out), out, json)
        return
    probed = replace(endpoint, model=model).probe(url)
    keep = out and out / "interrupted"
    if not as_black_box and (live := _with_step_log(url)):
        finish([_verify_engine(live, requests, plan, keep)], out, json)
        return
    from app.twin.black_box.burst_sender import Allowance
    from app.twin.black_box.calibration import BlackBoxCalibrator
    from app.twin.verification import verify as verify_endpoint

    plan = Plan(shares or BLACK_BOX_UTILISATIONS, repeats, seed=seed, rounds=BLACK_BOX_ROUNDS)
    allowance = Allowance(60 * limits.max_minutes, limits.max_requests)
    calibrator = BlackBoxCalibrator(probed, allowance, seed, report_progress)
    finish([verify_endpoint(calibrator, requests, plan, report_progress, keep)], out, json)


def finish(verifications: Iterable["Verification"], out: Path | None, json: bool) -> None:
    """Save and print each as it is done, then the table; exit with 1 if any prediction failed."""
    from app.text.verdict import as_json, summary_table
    from loadtest.report.comparison_report import LEGEND

    found, folders = [], []
    with ExitStack() as kept:
        for one in verifications:
            found.append(one)
            if out:
                folders.append(kept.enter_context(saved(one, out / one.config.name)))
            _print(one, json)
        if json:
            typer.echo(as_json(found))
        else:
            typer.echo("\n".join([*summary_table(found), "", LEGEND]))
        if out:
            places = dict.fromkeys(out if out in at.parents else at for at in folders)
            report_progress(f"run folders: {', '.join(map(str, places))}")
        if not all(one.holds for one in found):
            raise typer.Exit(1)


def _print(found: "Verification", json: bool) -> None:
    """Print the verdict, unless JSON follows, and the warnings in any case."""
    from app.text.provenance import outside_warning
    from app.text.verdict import profile_lines, verdict_lines

    if not json:
        described = profile_lines(found.profile) if found.identified else []
        typer.echo("\n".join([*described, *verdict_lines(found)]))
    for level in found.levels:
        if warning := outside_warning(level.provenance, widened=True):
            report_progress(warning)


def verify_policies(
    configs: Sequence["PolicyConfig"],
    choice: EngineChoice,
    trace: "Trace",
    plan: "Plan",
    out: Path | None,
) -> Iterator["Verification"]:
    """Verify each policy on a bundled engine of its own, one after the other."""
    require_engine()
    from app.twin.engines import bundled_engine

    for config in configs:
        report_progress(f"{config.name}: starting the bundled engine ({choice.model})")
        with bundled_engine(config, choice) as engine:
            yield _verify_engine(engine, trace, plan, out and out / config.name / "interrupted")


def _with_step_log(url: str) -> "LiveEngine | None":
    """Return the bundled engine at ``url`` if its step log can be read here, else None."""
    from app.twin.engines import engine_at
    from workloads.errors import EngineError

    try:
        return engine_at(url)
    except EngineError as error:
        report_progress(f"{error}; calibrating as a black box")
        return None


def _verify_engine(
    engine: "LiveEngine", trace: "Trace", plan: "Plan", keep: Path | None
) -> "Verification":
    from app.twin.step_log_calibration import StepLogCalibrator
    from app.twin.verification import verify as verify_endpoint

    calibrator = StepLogCalibrator(engine, plan.seed, report_progress)
    return verify_endpoint(calibrator, trace, plan, report_progress, keep)
