"""Options of a server that is measured, whether to calibrate it or to verify a forecast."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from servetwin.app.scenario.options.common import KEEP, Json, Overwriting, RunFolder, Seed
from servetwin.app.scenario.options.deployment import Deployment
from servetwin.app.scenario.options.endpoint import BlackBoxOptions, EndpointOptions
from servetwin.app.scenario.options.engine import EngineChoice
from servetwin.app.scenario.options.groups import given, require_absent
from servetwin.app.scenario.options.policy import ClusterOptions, PolicyOptions
from servetwin.app.scenario.options.trace import TraceOptions

if TYPE_CHECKING:
    from servetwin.loadtest.endpoint import Endpoint

# Policies of a run that was recorded; those of a live engine have names, or are in its log.
RECORDED_SETTINGS = ("preset", "batching", "kv", "prefix_cache", "settings")
_PARTS_OF_A_TRACE = (
    "reader", "columns", "max_bad_rows", "start_s", "end_s", "limit", "prompt_scale",
    "output_scale",
)  # fmt: skip
OF_A_RECORDED_SERVER = (
    "gpu", "techniques", "without", "layout", "server", "link", "times", "where", "imbalance",
    "overheads",
)  # fmt: skip
MEASURED_SETTINGS = ("kv_tokens", "block_tokens", "max_model_len", "max_seqs", "token_budget")


@dataclass(frozen=True, slots=True)
class MeasuredServer:
    """The bundled engine, an endpoint, or the server of a run that was recorded elsewhere."""

    endpoint: Annotated[EndpointOptions, ("api", "prompt", "prompt_salt")]
    limits: BlackBoxOptions
    engine: Annotated[EngineChoice, ("device", "dtype", "threads")]
    servers: Annotated[Deployment, OF_A_RECORDED_SERVER]
    link: Annotated[ClusterOptions, ("link_us", "link_gb_per_s")]
    recorded: Annotated[Path | None, Option(metavar="RUN")] = None
    """Instead of a live endpoint: a run folder of loadtest import, or of a load test, or a table
    with measured times."""
    url: Annotated[str | None, Option(rich_help_panel=EndpointOptions.PANEL)] = None
    """A running OpenAI-compatible endpoint; default: start the bundled engine."""
    model: Annotated[str | None, Option()] = None
    """Model preset (base) or folder of a checkpoint, or with --url the served model."""
    seed: Seed = 0
    json: Json = False

    def choice(self) -> EngineChoice:
        """Return the bundled engine to start."""
        return replace(self.engine, model=self.model or "base", seed=self.seed)

    def recorded_servers(self, profile: str | None = None) -> Deployment:
        """Return what served the recorded run."""
        return replace(
            self.servers, model=self.model, profile=() if profile is None else (profile,)
        )

    def probe(self) -> "Endpoint | None":
        """Return the endpoint that answers at the URL, if one is given."""
        endpoint = replace(self.endpoint, model=self.model)
        return None if self.url is None else endpoint.probe_generating(self.url)

    def require_recorded_alone(self, others: Mapping[str, object]) -> None:
        """Raise ``OptionError`` for an option of a live endpoint: ``--url``, or ``others``."""
        why = "sends a load; --recorded takes one that was sent"
        require_absent({"--url": self.url, **others}, why)

    def require_live(self, policy: PolicyOptions, *allowed: str) -> None:
        """Raise ``OptionError`` for an option that only a recorded run takes."""
        settings = given(policy, *RECORDED_SETTINGS)
        require_absent(settings, "goes with --recorded; live policies are named by --policy")
        of_server = {name: at for name, at in given(self.servers).items() if name not in allowed}
        require_absent(of_server, "goes with --recorded")


@dataclass(frozen=True, slots=True)
class CalibrationOptions:
    """The server that is calibrated, the profile that is written, and how much is measured."""

    server: MeasuredServer
    policy: Annotated[PolicyOptions, (*MEASURED_SETTINGS, *RECORDED_SETTINGS)]
    table: Annotated[TraceOptions, ("columns",)]
    out: Annotated[Path, Option()] = Path("profile.json")
    """Profile to write."""
    name: Annotated[str | None, Option()] = None
    """Name of the profile; default its file's."""
    rounds: Annotated[int, Option(min=1)] = 2
    """Rounds of bursts per server."""
    until: Annotated[str, Option(metavar="SHARE")] = "100%"
    """With --recorded: fit the stamps of the first 50% of the requests, say."""
    point: Annotated[str | None, Option(metavar="ttft=S,tpot=S,users=N,...")] = None
    """Instead of a load: mean TTFT and TPOT of users without pauses, prompt= and output= tokens."""
    overwriting: Overwriting = KEEP

    @property
    def label(self) -> str:
        """The name of the profile."""
        return self.name or self.out.stem


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """The server that is judged, the forecast, its load tests, and where both are kept."""

    server: MeasuredServer
    settings: Annotated[
        PolicyOptions,
        ("reservation", *MEASURED_SETTINGS, "wait_limit_ms", *RECORDED_SETTINGS),
    ]
    part: Annotated[TraceOptions, (*_PARTS_OF_A_TRACE, "lanes")]
    trace: Annotated[Path | None, Option()] = None
    """Trace to predict; default the bundled sample."""
    as_black_box: Annotated[
        bool, Option("--black-box", "--outside", rich_help_panel=EndpointOptions.PANEL)
    ] = False
    """With --url: use no step log, only what clients see (so for foreign endpoints)."""
    policy: Annotated[tuple[str, ...], Option()] = ()
    """Such as static+contiguous or continuous+paged+prefix; repeatable."""
    utilisation: Annotated[tuple[float, ...], Option(min=0.05, max=0.95)] = ()
    """Share of the present capacity offered (0.7; of a black box 0.5, then 0.7); repeatable."""
    repeats: Annotated[int | None, Option(min=1)] = None
    """Load tests at each load, or pairs of them with --technique; 5 unless given."""
    profile: Annotated[str | None, Option()] = None
    """Judge this profile (a name or a .json file) instead of calibrating."""
    why: Annotated[bool, Option("--why")] = False
    """Say which setting of the server, stated wrongly, explains the measurements best."""
    out: RunFolder = None
    overwriting: Overwriting = KEEP
