"""Send a load to an endpoint, with its progress on the terminal and its records in a folder."""

from dataclasses import dataclass, replace
from pathlib import Path

from servetwin.app.reports.progress import live_file, progress
from servetwin.app.scenario.options.load import LoadChoice
from servetwin.loadtest.endpoint import Endpoint
from servetwin.loadtest.options import LoadOptions
from servetwin.loadtest.plan.endpoint_limits import with_an_output
from servetwin.loadtest.report.load_notes import prompt_cache
from servetwin.loadtest.report.server_metrics import ServerWatch, save_server_metrics
from servetwin.loadtest.report.token_counts import counted_prompts, prompt_lengths_note
from servetwin.loadtest.run.client import OnProgress, Progress, run_load_test
from servetwin.loadtest.run.journal import Journal
from servetwin.sim.records.run import Run, RunError
from servetwin.workloads.readers.native import write_trace
from servetwin.workloads.tokenizer import LocalTokenizer
from servetwin.workloads.trace import Trace


@dataclass(frozen=True, slots=True)
class LoadTest:
    """What is sent, how, and where its records go."""

    trace: Trace
    load: LoadChoice
    sending: LoadOptions
    tokenizer: LocalTokenizer | None
    folder: Path
    live: Path | None = None
    gpus: str | None = None
    """The page of an exporter of the GPUs."""

    def send_to(self, endpoint: Endpoint) -> tuple[Run, ServerWatch]:
        """Send the load to an endpoint; a generated one is kept in the folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.load.is_made:
            write_trace(with_an_output(self.trace), self.folder / "trace.jsonl")
        watch = ServerWatch(endpoint.base_url, insecure=endpoint.insecure, gpus=self.gpus)
        scenario = {"seed": self.load.seed, "load": self.load.record()}
        with watch, live_file(self.live) as show, Journal(self.folder, scenario) as journal:
            run = self._send(endpoint, show, journal)
        run.as_csv = self.load.csv
        run.scenario |= scenario
        run.extra["prompt_cache"] = prompt_cache(run.requests, self.trace, watch.cache_counts())
        if note := prompt_lengths_note(run.requests, *self._counted(endpoint, run)):
            run.scenario["notes"].append(note)
        return run, watch

    def _counted(self, endpoint: Endpoint, run: Run) -> tuple[Trace, str | None]:
        """Return the trace as the client's tokenizer counts what was sent, and its name."""
        if self.tokenizer is None:
            return self.trace, None
        sent = replace(endpoint, salt=run.scenario["endpoint"]["salt"])
        return counted_prompts(self.trace, sent, self.tokenizer), self.tokenizer.name

    def _send(self, endpoint: Endpoint, show: OnProgress, journal: Journal) -> Run:
        """Send the load; ``show`` gets its progress too, and ``journal`` what has ended."""
        trace, load = self.trace, self.sending
        lasts_s = trace.lanes.duration_s if trace.lanes else load.endless and load.duration_s
        if lasts_s:
            label, total = f"load test, {lasts_s:g} s", round(lasts_s)
        else:
            label, total = f"load test, {trace.span_s:.0f} s of arrivals", len(trace)
        with progress(label, total=total) as advance:

            def on_progress(state: Progress) -> None:
                advance(round(state.elapsed_s) if lasts_s else state.ended)
                show(state)

            return run_load_test(
                endpoint, trace, options=load, on_progress=on_progress, journal=journal
            )


def server_metrics_line(watch: ServerWatch, run: Run, folder: Path) -> str:
    """Save the scraped metrics and describe them in one line, or say why they are not kept."""
    try:
        return save_server_metrics(watch, run, folder)
    except RunError as error:
        return f"server metrics: not kept ({error})"
