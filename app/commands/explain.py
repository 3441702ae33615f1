"""``servetwin explain``: where the time of a request went."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from app.scenario.common_options import Json

if TYPE_CHECKING:
    from sim.explain.explain import Explainer
    from sim.records.run import Run


def explain(
    run: Annotated[Path, Argument(help="Run folder, of replay --out or loadtest --out.")],
    request_id: Annotated[
        str | None, Argument(metavar="[ID]", help="The request to explain.")
    ] = None,
    slowest: Annotated[
        int | None, Option(help="Explain the N requests of the longest latency.", min=1)
    ] = None,
    trace_export: Annotated[
        Path | None, Option(help="Write a Chrome trace (JSON) that Perfetto opens.")
    ] = None,
    start: Annotated[float | None, Option(help="Export from this second on.")] = None,
    end: Annotated[float | None, Option(help="Export up to this second.")] = None,
    json: Json = False,
) -> None:
    """Split the latency of requests of RUN into parts that sum to it, or export its timeline."""
    from sim.explain.explain import Explainer
    from sim.records.run import load_run

    _require_one_question(request_id, slowest, trace_export)
    _require_window(trace_export, start, end)
    loaded = load_run(run)
    explainer = Explainer(loaded)
    if trace_export is not None:
        _export(loaded, explainer, trace_export, (start, end), json)
    elif slowest is not None:
        _tell_slowest(explainer, slowest, json)
    elif request_id is not None:
        _tell(explainer, request_id, json)


def _require_one_question(*questions: object) -> None:
    from sim.records.run import RunError

    if sum(question is not None for question in questions) != 1:
        raise RunError("explain: give one of a request ID, --slowest N or --trace-export FILE")


def _require_window(export: Path | None, start_s: float | None, end_s: float | None) -> None:
    from sim.records.run import RunError

    if export is None and (start_s is not None or end_s is not None):
        raise RunError("explain: --start and --end are the window of --trace-export")
    if start_s is not None and end_s is not None and not start_s < end_s:
        raise RunError(f"explain: --start {start_s:g} must be before --end {end_s:g}")


def _tell(explainer: "Explainer", request_id: str, json: bool) -> None:
    from app.text.explanation import as_json, explanation_lines

    found = explainer.explain(request_id)
    typer.echo(as_json(found) if json else "\n".join(explanation_lines(found)))


def _tell_slowest(explainer: "Explainer", count: int, json: bool) -> None:
    from app.text.explanation import as_json, slowest_lines

    found = explainer.slowest(count)
    typer.echo(as_json(found) if json else "\n".join(slowest_lines(found)))


def _export(
    run: "Run",
    explainer: "Explainer",
    path: Path,
    window_s: tuple[float | None, float | None],
    json: bool,
) -> None:
    import json as json_module

    from sim.explain.timeline import trace_events, write_trace

    start_s, end_s = window_s
    events = trace_events(
        run,
        explainer.spans,
        float("-inf") if start_s is None else start_s,
        float("inf") if end_s is None else end_s,
    )
    count = write_trace(path, events)
    if json:
        typer.echo(json_module.dumps({"file": str(path), "events": count}))
    else:
        typer.echo(f"{count} events: {path} (open it in https://ui.perfetto.dev)")
