"""``servetwin explain``: where the time of a request went."""

import json
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from servetwin.app.scenario.options.common import Json
from servetwin.app.scenario.options.groups import takes_options

if TYPE_CHECKING:
    from servetwin.sim.explain.explain import Explainer
    from servetwin.sim.records.run import Run


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a run: one request, the slowest ones, or its timeline in a window."""

    request_id: Annotated[str | None, Argument(metavar="[ID]")] = None
    """The request to explain."""
    slowest: Annotated[int | None, Option(min=1)] = None
    """Explain the N requests of the longest latency."""
    trace_export: Annotated[Path | None, Option()] = None
    """Write a Chrome trace (JSON) that Perfetto opens."""
    start: Annotated[float | None, Option()] = None
    """Export from this second on."""
    end: Annotated[float | None, Option()] = None
    """Export up to this second."""

    def check(self) -> None:
        """Raise ``RunError`` unless it is one question, with a window that can be."""
        from servetwin.sim.records.run import RunError

        if (self.request_id, self.slowest, self.trace_export).count(None) != 2:
            raise RunError("explain: give one of a request ID, --slowest N or --trace-export FILE")
        if self.trace_export is None and (self.start, self.end) != (None, None):
            raise RunError("explain: --start and --end are the window of --trace-export")
        if self.start is not None and self.end is not None and not self.start < self.end:
            raise RunError(f"explain: --start {self.start:g} must be before --end {self.end:g}")


@takes_options()
def explain(
    run: Annotated[Path, Argument(help="Run folder, of replay --out or loadtest --out.")],
    question: Question,
    as_json: Json = False,
) -> None:
    """Split the latency of requests of RUN into parts that sum to it, or export its timeline."""
    from servetwin.app.reports.explanation import as_json as render_json
    from servetwin.app.reports.explanation import explanation_lines, slowest_lines
    from servetwin.sim.explain.explain import Explainer
    from servetwin.sim.records.run import load_run

    question.check()
    loaded = load_run(run)
    explainer = Explainer(loaded)
    if question.trace_export is not None:
        _export(loaded, explainer, question.trace_export, question, as_json)
    elif question.slowest is not None:
        found = explainer.slowest(question.slowest)
        typer.echo(render_json(found) if as_json else "\n".join(slowest_lines(found)))
    elif question.request_id is not None:
        one = explainer.explain(question.request_id)
        typer.echo(render_json(one) if as_json else "\n".join(explanation_lines(one)))


def _export(
    run: "Run", explainer: "Explainer", path: Path, window: Question, as_json: bool
) -> None:
    from servetwin.sim.explain.timeline import trace_events, write_trace

    start_s = -inf if window.start is None else window.start
    end_s = inf if window.end is None else window.end
    count = write_trace(path, trace_events(run, explainer.spans, start_s, end_s))
    if as_json:
        typer.echo(json.dumps({"file": str(path), "events": count}))
    else:
        typer.echo(f"{count} events: {path} (open it in https://ui.perfetto.dev)")
