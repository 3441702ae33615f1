"""``servetwin loadtest`` at one level: check everything, then send the load and judge it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from servetwin.app.commands.load.load_judges import Judges, References
from servetwin.app.commands.load.sent_load import LoadTest, server_said
from servetwin.app.commands.loadtest_turns import report_turns, run_in_turns
from servetwin.app.commands.report import write_html
from servetwin.app.reports.progress import saved
from servetwin.app.scenario.options.endpoint import EndpointOptions, endpoint_line
from servetwin.app.scenario.options.load import LoadChoice
from servetwin.loadtest.plan.endpoint_limits import check_times, within_context, without_outputs
from servetwin.loadtest.run.event_loop import signals_deferred

if TYPE_CHECKING:
    from servetwin.loadtest.body.options import BodyOptions
    from servetwin.loadtest.endpoint import Endpoint
    from servetwin.loadtest.run.client import LoadOptions
    from servetwin.workloads.tokenizer import LocalTokenizer
    from servetwin.workloads.trace import Trace


@dataclass(frozen=True, slots=True)
class SingleLoadTest:
    """A load that is ready to be sent to an endpoint, or to it and a ``baseline`` in turns."""

    load: LoadChoice
    sending: "LoadOptions"
    trace: "Trace"
    tokenizer: "LocalTokenizer | None"
    judges: Judges
    references: References
    endpoint: "Endpoint"
    baseline: "Endpoint | None"

    def send(self, folder: Path, live: Path | None, json: bool, html: Path | None) -> None:
        """Send the load, keep the run in ``folder``, and report it; end with its exit code."""
        run, watch = self._test(folder, live).of(self.endpoint)
        with signals_deferred(), saved(run, folder) as kept:
            typer.echo(server_said(watch, run, kept), err=True)
            code = self.judges.report(run, kept, self.references, json)
            if html:
                against = [self.judges.against] if self.judges.against else []
                write_html([kept, *against], self.judges.slo, html)
            if code:
                raise typer.Exit(code)

    def send_in_turns(
        self, baseline: "Endpoint", turns: int, folder: Path, live: Path | None, json: bool
    ) -> None:
        """Send the load to both servers in turns, and judge; end with the exit code."""
        sides = run_in_turns(self._test(folder, live), self.endpoint, baseline, turns)
        report_turns(sides, self.judges.allowed, json, self.judges.findings)

    def _test(self, folder: Path, live: Path | None) -> LoadTest:
        return LoadTest(self.trace, self.load, self.sending, folder, live, self.tokenizer)


def prepared(
    url: str,
    load: LoadChoice,
    options: EndpointOptions,
    body: "BodyOptions",
    judges: Judges,
    how: Mapping[str, Any],
) -> SingleLoadTest:
    """Read the load, ask the endpoints what they serve, and check that all fits together.

    ``how`` has the fields of ``LoadOptions`` that ``load`` does not know.
    """
    sending, tokenizer, requests = load.options(**how), load.tokenizer(), load.trace()
    options = options.for_prompts(requests, images=body.images is not None)
    endpoint = options.probe(url, body)
    check_times(endpoint, sending, judges.limits, predicted=judges.against is not None)
    if endpoint.api == "embeddings":
        requests = without_outputs(requests)
    too_long = options.on_too_long
    requests = within_context(requests, endpoint, too_long.value if too_long else None)
    references = judges.references(endpoint, requests, sending)
    baseline = options.probe(judges.baseline_url, body) if judges.baseline_url else None
    for each in filter(None, (endpoint, baseline)):
        typer.echo(endpoint_line(each), err=True)
    return SingleLoadTest(
        load, sending, requests, tokenizer, judges, references, endpoint, baseline
    )
