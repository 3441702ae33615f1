"""All options of ``servetwin loadtest``: the load, the endpoint, and what the test is judged by."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from servetwin.app.scenario.options.common import SLO, GateOptions, Json, Overwriting, RunFolder
from servetwin.app.scenario.options.deployment import Deployment
from servetwin.app.scenario.options.endpoint import BodyChoice, EndpointOptions
from servetwin.app.scenario.options.groups import given, require_absent
from servetwin.app.scenario.options.load import LoadChoice
from servetwin.app.scenario.options.policy import PolicyOptions
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.trace import Trace

if TYPE_CHECKING:
    from servetwin.loadtest.endpoint import Endpoint
    from servetwin.loadtest.options import LoadOptions

_OF_A_GATE = GateOptions.PANEL


@dataclass(frozen=True, slots=True)
class SenderOptions:
    """The processes that share a load, and their patience: fields of ``LoadOptions``."""

    processes: Annotated[int | None, Option(min=1)] = None
    """Processes that share the load; default what its peak rate needs."""
    workers: Annotated[str, Option(metavar="local|ray[=HOST:PORT]")] = "local"
    """Where these run: here, or over a Ray cluster (needs ray)."""
    timeout_s: Annotated[float, Option("--timeout", min=0.001)] = 600
    """Per-request timeout in seconds."""


@dataclass(frozen=True, slots=True)
class LoadTestOptions:
    """A load test, or a sweep of them."""

    load: LoadChoice
    endpoint: EndpointOptions
    body: BodyChoice
    gate: GateOptions
    overwriting: Overwriting
    senders: SenderOptions
    servers: Annotated[Deployment, ("profile",)]
    policy: Annotated[PolicyOptions, ("preset", "settings")]
    against: Annotated[Path | None, Option()] = None
    """Run folder of a prediction to compare with."""
    baseline_url: Annotated[str | None, Option(rich_help_panel=_OF_A_GATE)] = None
    """Or judge URL against this server: load tests of both in turns (A/B/A)."""
    turns: Annotated[int, Option(min=1, rich_help_panel=_OF_A_GATE)] = 1
    """With --baseline-url: load tests of URL, each between two of the baseline."""
    slo: Annotated[str | None, SLO] = None
    gpu_metrics: Annotated[str | None, Option(metavar="URL")] = None
    """Also read the watts of the GPUs: the page of a DCGM exporter, or of AMD's."""
    live: Annotated[Path | None, Option()] = None
    """Also write the progress, one JSON line a second."""
    out: RunFolder = None
    json: Json = False

    def sending(self, load: LoadChoice) -> "LoadOptions":
        """Return how a load is sent."""
        return load.options(**asdict(self.senders))

    def probe(self, url: str, trace: Trace) -> "Endpoint":
        """Find out what answers at ``url`` and how the prompts of ``trace`` are put to it."""
        body = self.body.options(self.load.shape.lora(self.load.seed))
        endpoint = self.endpoint.for_prompts(trace, images=body.images is not None)
        return endpoint.probe(url, body)

    def fitting(self, trace: Trace, endpoint: "Endpoint") -> Trace:
        """Return the requests that fit into the server's context; lengths of ours are shortened."""
        from servetwin.loadtest.plan.endpoint_limits import within_context

        if trace.lanes:
            return trace  # its sessions end where they outgrow the context
        load, chosen = self.load, self.endpoint.on_too_long
        free = load.path is None and not (load.prompt_tokens or load.output_tokens)
        return within_context(trace, endpoint, chosen or ("clip" if free else None))

    def check_sweep(self) -> None:
        """Raise for options that a sweep needs, or that are of one load test."""
        if self.load.sweep.of not in ("slo", "climb"):
            self._check_attainment()
        require_absent(
            given(self, "against", "baseline_url", "gate", "live"),
            "is for one load test, and a sweep runs one for each level; give --trace FILE, "
            "--rate R or --concurrency N instead",
        )

    def _check_attainment(self) -> None:
        if self.slo is None and self.load.sweep.attainment is not None:
            raise LoadTestError("--attainment: give --slo as well, such as ttft=500ms,tpot=50ms")

    def check_test(self) -> None:
        """Raise for options of a single load test that exclude or need each other."""
        self._check_attainment()
        require_absent(
            given(self, "servers", "policy"),
            "predicts the levels of --sweep; --against RUN compares a load test with a prediction",
        )
        references = [*given(self, "against", "baseline_url"), *given(self.gate, "baseline")]
        first, *more = sorted(references) or [""]
        if more:
            raise LoadTestError(f"{first} and {more[0]} exclude each other: give one")
        if self.gate.allow and first in ("", "--against"):
            raise LoadTestError("--allow: needs a baseline: --baseline or --baseline-url")
        if (self.load.endless or self.load.shape.lanes) and first not in ("", "--against"):
            raise LoadTestError(
                "--baseline: users with --duration, and lanes, send more to a faster server; "
                "give --limit N without lanes, so that both runs have the same requests"
            )
