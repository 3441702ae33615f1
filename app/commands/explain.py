"""``servetwin explain``: where the time of a request went."""

import json
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from app.scenario.common_options import Json

if TYPE_CHECKING:
    from sim.explain.explain import Explainer
    from sim.records.run import Run

Window = tuple[float | None, float | None]


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
    as_json: Json = False,
) -> None:
    """Split the latency of requests of RUN into parts that sum to it, or export its timeline."""
    from app.text.explanation import as_json as render_json
    from app.text.explanation import explanation_lines, slowest_lines
    from sim.explain.explain import Explainer
    from sim.records.run import load_run

    _require_one_question(request_id, slowest, trace_export)
    _require_window(trace_export, start, end)
    loaded = load_run(run)
    explainer = Explainer(loaded)
    if trace_export is not None:
        _export(loaded, explainer, trace_export, (start, end), as_json)
    elif slowest is not None:
        found = explainer.slowest(slowest)
        typer.echo(render_json(found) if as_json else "\n".join(slowest_lines(found)))
    elif request_id is not None:
        one = explainer.explain(request_id)
        typer.echo(render_json(one) if as_json else "\n".join(explanation_lines(one)))


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


def _export(
    run: "Run", explainer: "Explainer", path: Path, window_s: Window, as_json: bool
) -> None:
    from sim.explain.timeline import trace_events, write_trace

    start_s = -inf if window_s[0] is None else window_s[0]
    end_s = inf if window_s[1] is None else window_s[1]
    count = write_trace(path, trace_events(run, explainer.spans, start_s, end_s))
    if as_json:
        typer.echo(json.dumps({"file": str(path), "events": count}))
    else:
        typer.echo(f"{count} events: {path} (open it in https://ui.perfetto.dev)")
