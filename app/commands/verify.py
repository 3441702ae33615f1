"""``servetwin verify``: calibrate, predict, load-test and judge, on one engine per policy."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.commands.calibrate import MEASURED_SETTINGS
from app.scenario.black_box_options import BlackBoxOptions
from app.scenario.common_options import Json, RunFolder, Seed
from app.scenario.endpoint_options import EndpointOptions, ModelOrPreset
from app.scenario.engine_options import EngineChoice, require_engine
from app.scenario.option_groups import Only, takes_options
from app.scenario.policy_options import PolicyOptions
from app.scenario.trace_options import TraceOptions
from app.text.saving import saved, saved_if_asked

if TYPE_CHECKING:
    from app.twin.black_box.verification import OutsideVerification
    from app.twin.engines import LiveEngine
    from app.twin.verification import Plan, Verification
    from policies.config import PolicyConfig
    from workloads.trace import Trace


PARTS_OF_A_TRACE = (
    "max_bad_rows", "start_s", "end_s", "limit", "prompt_scale", "output_scale",
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
    from_outside: Annotated[
        bool,
        typer.Option(
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
            help="Share of the predicted capacity offered (0.7; from outside 0.5, then 0.7).",
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

    An endpoint without a step log that can be read here is calibrated from outside.
    """
    from app.twin.black_box.verification import OutsidePlan, verify_outside
    from app.twin.verification import Plan
    from policies.config import PolicyConfig

    requests = replace(part, path=trace, seed=seed).read_or_sample()
    base = settings.over(PolicyConfig())
    configs = [policy_of(label, base) for label in policy or ("continuous+paged",)]
    plan = Plan(utilisation=utilisation or 0.7, repeats=repeats, seed=seed)
    if url is None:
        choice = replace(engine, model=model or "base", seed=seed)
        finish(verify_policies(configs, choice, requests, plan, out), out, json)
        return
    probed = replace(endpoint, model=model).probe(url)
    if not from_outside and (live := _with_step_log(url)):
        finish([_verify_at(live, requests, plan, out)], out, json)
        return
    shares = (0.5, 0.7) if utilisation is None else (utilisation,)
    outside_plan = OutsidePlan(
        shares, repeats, seed=seed, max_s=60 * limits.max_minutes, max_requests=limits.max_requests
    )
    keep = out and out / "interrupted"
    _finish_outside(verify_outside(probed, requests, outside_plan, tell, keep), out, json)


def policy_of(label: str, base: "PolicyConfig") -> "PolicyConfig":
    """``static+contiguous-exact`` or ``continuous+paged+prefix`` laid over ``base``."""
    from workloads.errors import PolicyError

    batching, plus, rest = label.partition("+")
    kv, _, prefix = rest.partition("+")
    kv, _, reservation = kv.partition("-")
    if not plus or prefix not in ("", "prefix"):
        raise PolicyError(
            f"--policy {label!r}: write BATCHING+KV or BATCHING+KV+prefix, such as "
            "continuous+paged+prefix"
        )
    changes: dict[str, Any] = {"batching": batching, "kv": kv, "prefix_cache": prefix == "prefix"}
    if reservation:
        changes["reservation"] = reservation
    return replace(base, **changes)


def finish(verifications: Iterable["Verification"], out: Path | None, json: bool) -> None:
    """Save and print each as it is done, then the table; exit with 1 if any prediction failed."""
    from app.text.provenance import outside_warning, rests_line
    from app.text.verdict import as_json, summary_table, verdict_lines
    from loadtest.report.comparison_report import LEGEND

    found, folders = [], []
    with ExitStack() as kept:
        for one in verifications:
            found.append(one)
            if out:
                folders.append(kept.enter_context(saved(one, out / one.config.name)))
            if not json:
                typer.echo("\n".join([*verdict_lines(one), rests_line(one.provenance)]))
            if warning := outside_warning(one.provenance, widened=True):
                tell(warning)
        if json:
            typer.echo(as_json(found))
        else:
            typer.echo("\n".join([*summary_table(found), "", LEGEND]))
        if out:
            places = dict.fromkeys(out if out in at.parents else at for at in folders)
            tell(f"run folders: {', '.join(map(str, places))}")
        if not all(one.comparison.holds for one in found):
            raise typer.Exit(1)


def verify_policies(
    configs: Sequence["PolicyConfig"],
    choice: EngineChoice,
    trace: "Trace",
    plan: "Plan",
    out: Path | None,
) -> Iterator["Verification"]:
    """Verify each policy on a bundled engine of its own, one after the other."""
    require_engine()
    for config in configs:
        yield _verify_bundled(config, choice, trace, plan, out)


def tell(line: str) -> None:
    """One line on what is being done, on stderr."""
    typer.echo(line, err=True)


def _with_step_log(url: str) -> "LiveEngine | None":
    """The bundled engine at ``url`` if its step log can be read here."""
    from app.twin.engines import engine_at
    from workloads.errors import EngineError

    try:
        return engine_at(url)
    except EngineError as error:
        tell(f"{error}; calibrating from outside")
        return None


def _verify_at(
    engine: "LiveEngine", trace: "Trace", plan: "Plan", out: Path | None
) -> "Verification":
    from app.twin.verification import verify as verify_engine

    return verify_engine(engine, trace, plan, tell, out and out / "interrupted")


def _finish_outside(found: "OutsideVerification", out: Path | None, json: bool) -> None:
    """Save and print; exit with 1 if a prediction failed."""
    from json import dumps

    from app.commands.calibrate import describe_profile
    from app.twin.black_box.verification import verdict_lines

    with saved_if_asked(found, out) as folder:
        if folder:
            tell(f"run folders: {folder}")
        if json:
            typer.echo(dumps(found.as_dict()))
        else:
            lines = [*describe_profile(found.profile), *verdict_lines(found)]
            typer.echo("\n".join(lines))
        if not found.holds:
            raise typer.Exit(1)


def _verify_bundled(
    config: "PolicyConfig", choice: EngineChoice, trace: "Trace", plan: "Plan", out: Path | None
) -> "Verification":
    from app.twin.engines import bundled_engine
    from app.twin.verification import verify as verify_engine

    tell(f"{config.name}: starting the bundled engine ({choice.model})")
    with bundled_engine(config, choice) as engine:
        keep = out and out / config.name / "interrupted"
        return verify_engine(engine, trace, plan, tell, keep)
