"""A plan as text, as JSON, and as manifests in a folder."""

from dataclasses import asdict
from tempfile import TemporaryFile
from textwrap import wrap

from servetwin.app.command import print_result
from servetwin.app.plan.day import PlannedDay
from servetwin.app.plan.plan import Plan, PlannedDeployment, gpus_of, plan
from servetwin.app.reports.progress import progress, report_progress
from servetwin.app.reports.table import WIDTH, table_lines
from servetwin.app.scenario.options.simulations import PlanOptions
from servetwin.app.scenario.options.trace import TraceOptions
from servetwin.app.scenario.prices import LISTED
from servetwin.app.words import RESOURCES, figure_words, in_brackets, number, target_words
from servetwin.loadtest.report.limits import parse_slo
from servetwin.sim.experiments.capacity import SLOTarget
from servetwin.workloads.errors import ServetwinError, os_errors
from servetwin.workloads.files import write_whole

_BRACKETS = "In brackets: 90 % of other traffic of this kind, step times as uncertain as they are."


def print_plan(
    load: TraceOptions, model: str, slo: str, attainment: float, options: PlanOptions
) -> None:
    """Plan for the load, print the rows, and write their manifests where a folder is given."""
    limits, trace = parse_slo(slo), load.read()
    _require_folder(options)
    with progress("plan, kinds of GPUs", total=len(gpus_of(options))) as advance:
        answer = plan(
            trace, model, limits, attainment=attainment, seed=load.seed, options=options,
            on_gpu=advance,
        )  # fmt: skip
    record = {
        "model": model, "trace": trace.source, "requests": len(trace), "seed": load.seed,
        "rate_per_s": trace.rate_per_s, "slo": {**asdict(limits), "attainment": attainment},
        "plans": [asdict(row) for row in answer.rows], "prices": LISTED["about"],
    }  # fmt: skip
    currency = "" if options.price else "US$ "
    lines = [*day_lines(answer, currency), *plan_lines(answer, currency)]
    print_result(options.as_json, record, lines)
    _write(answer, options)


def plan_lines(answer: Plan, currency: str = "") -> list[str]:
    """Return the answer in a sentence, the rows, their commands, and what they rest on.

    ``currency`` stands before the price.
    """
    best, rows = answer.rows[0], [row for row in answer.rows if not row.problem]
    price = best.cost_per_h
    cost = "price unknown" if price is None else f"{currency}{price:,.2f} per hour"
    load = f"{target_words(answer.target)} for {answer.requests:,} requests"
    load += f" at {answer.rate_per_s:.4g}/s" if not answer.lanes else f" in {answer.lanes} lanes"
    first = f"{answer.model} on {best.gpus:,} x {best.gpu}, {cost}: {load}"
    cells = [plan_row(row, answer.target) for row in rows]
    table = table_lines(list(cells[0]), [list(row.values()) for row in cells], "<")
    problems = [f"{row.gpu}: {row.problem}" for row in answer.rows if row.problem]
    texts = [*problems, _BRACKETS, f"Prices: {LISTED['about']}; yours with --price."]
    return [
        *wrap(first, WIDTH), "", *table, "",
        *(line for row in rows for line in _start(row)), "",
        *(line for text in texts for line in wrap(text, WIDTH)),
    ]  # fmt: skip


def plan_row(row: PlannedDeployment, target: SLOTarget) -> dict[str, str]:
    """Return the plan of a kind of GPU, as texts by head; what a narrow window shows comes first.

    It holds up to so many requests per second, with the interval.
    """
    return {
        "GPUs": f"{row.gpus:,} x {row.gpu}",
        "per hour": "-" if row.cost_per_h is None else f"{row.cost_per_h:,.2f}",
        "holds up to": in_brackets(row.capacity_per_s, "/s"),
        "at the load": figure_words(target, 1 - (row.headroom or 0.0)),
        "split": f"{row.servers:,} x {row.layout}",
        "per M tokens": in_brackets(row.cost_per_million_tokens),
        "J/token": in_brackets(row.joules_per_token),
        "step times": (row.evidence or "").removeprefix("computed "),
    }


def day_lines(answer: Plan, currency: str) -> list[str]:
    """Return the fleet of the day, those of all kinds of GPUs, and when how many replicas serve;
    nothing where none was asked for."""
    best, cells = answer.rows[0], [day_row(row.gpu, row.day) for row in answer.rows if row.day]
    if best.day is None:
        return []
    text, options, checks = day_texts(best, best.day, answer.target, currency)
    # Of several changes at a time, the last.
    sizes = {f"{at_s:.0f} s": f"{count:g}" for at_s, count in best.day.fleet.sizes}
    course = ", ".join(f"{count} at {at_s}" for at_s, count in sizes.items())
    return [
        *wrap(text, WIDTH), f"  {options}", "",
        *table_lines(list(cells[0]), [list(row.values()) for row in cells], "<"), "",
        *(line for text in (checks, f"Replicas: {course}.") for line in wrap(text, WIDTH)), "",
    ]  # fmt: skip


def day_texts(
    row: PlannedDeployment, day: PlannedDay, target: SLOTarget, currency: str
) -> tuple[str, str, str]:
    """Return the answer in a sentence, the fleet as options of ``servetwin replay``, and what it
    attains at more load."""
    cluster, cost = day.fleet.cluster, day.cost
    price = "price unknown" if cost is None else f"{currency}{cost:,.2f}"
    rule = f" --autoscale {cluster.autoscaling}" if cluster.autoscaling else ""
    shares = (
        f"{100 * share:.2f} % at {load:g} of the load"
        f" ({'holds' if share >= target.attainment else 'does not hold'})"
        for load, share in day.attainments.items()
    )
    return (
        f"The day on up to {cluster.replicas} x {row.layout} of {row.gpu}, {price}: "
        f"{target_words(target)}, though one crashes",
        f"--replicas {cluster.replicas}{rule} --faults {cluster.faults}",
        f"Simulated: {', '.join(shares)}. Start-up, unless --day sets it: {day.settings}.",
    )


def day_row(gpu: str, day: PlannedDay) -> dict[str, str]:
    """Return the fleet of a kind of GPU, as texts by head."""
    return {
        "GPU": gpu,
        "cost": "-" if day.cost is None else f"{day.cost:,.2f}",
        "replica-hours": number(day.fleet.replica_hours, 1.0),
        "static": f"{number(day.static.replica_hours, 1.0)} ({day.static.cluster.replicas} x)",
        "ideal": number(day.least_replica_hours, 1.0),
        "within the SLO": f"{100 * day.fleet.attainment:.2f} %",
    }


def _start(row: PlannedDeployment) -> list[str]:
    """Return what limits the servers of a row, and the commands that start them."""
    limit = f", limited by {RESOURCES[row.limited_by]}" if row.limited_by else ""
    head = f"{row.servers:,} x on {row.gpu}{limit}:"
    return [head, *(f"  {command}" for command in row.command.splitlines())]


def _require_folder(options: PlanOptions) -> None:
    """Make the folder of the manifests, before the work begins.

    Raises ``ServetwinError`` where it cannot be written, or a file is there.
    """
    if options.out is None:
        return
    with os_errors(ServetwinError, f"--out {options.out}: cannot be made"):
        options.out.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=options.out).close()
    for path in (options.out / f"{gpu}.yaml" for gpu in gpus_of(options)):
        if path.exists() and not options.overwriting.overwrite:
            raise ServetwinError(f"--out: {path}: File exists (--overwrite)")


def _write(answer: Plan, options: PlanOptions) -> None:
    """Write a manifest for each row, and say where."""
    if options.out is None:
        return
    rows = [row for row in answer.rows if not row.problem]
    paths = {options.out / f"{row.gpu}.yaml": row for row in rows}
    for path, row in paths.items():
        write_whole(path, row.manifest)
    report_progress(f"manifests: {', '.join(map(str, paths))}")
