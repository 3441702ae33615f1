"""Options that several commands share, and what they build."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from policies.config import PolicyConfig
    from workloads.trace import Trace

TracePath = Annotated[
    Path | None, typer.Argument(help="Any known trace: a file, or a WEKA directory.")
]
Batching = Annotated[
    str | None,
    typer.Option(
        help="static, insertion, continuous, prefill-first, chunked, speculative, path.py:Class.",
        rich_help_panel="Policy",
    ),
]
KV = Annotated[
    str | None,
    typer.Option(help="contiguous, paged, windowed, or path.py:Class.", rich_help_panel="Policy"),
]
ReservationOption = Annotated[
    str | None,
    typer.Option(
        "--reservation", help="Contiguous regions: max, pow2 or exact.", rich_help_panel="Policy"
    ),
]
PrefixCache = Annotated[
    bool | None,
    typer.Option(
        "--prefix-cache/--no-prefix-cache",
        help="Share equal prompt blocks (paged).",
        rich_help_panel="Policy",
    ),
]
KVTokens = Annotated[
    str | None,
    typer.Option(help="KV memory in tokens, or 'unlimited'.", rich_help_panel="Policy"),
]
BlockTokens = Annotated[
    int | None, typer.Option(help="Tokens per KV block.", rich_help_panel="Policy")
]
MaxModelLen = Annotated[
    int | None, typer.Option(help="Longest prompt + output.", rich_help_panel="Policy")
]
MaxSeqs = Annotated[
    int | None, typer.Option(help="Sequences in a batch at most.", rich_help_panel="Policy")
]
TokenBudget = Annotated[
    int | None, typer.Option(help="Rows of a continuous step at most.", rich_help_panel="Policy")
]
WaitLimitMs = Annotated[
    float | None,
    typer.Option(help="How long a static batch waits to fill.", rich_help_panel="Policy"),
]
QueueLimit = Annotated[
    int | None, typer.Option(help="Refuse when so many wait.", rich_help_panel="Policy")
]

Preset = Annotated[
    str | None,
    typer.Option(help="A known server's policies: vllm-v1, sglang ...", rich_help_panel="Policy"),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any other setting: queue_order, admission, victim, eviction ...",
        rich_help_panel="Policy",
    ),
]
Profiles = Annotated[
    list[str] | None,
    typer.Option(
        "--profile",
        help="Shipped name or .json path; several: pools of that hardware each.",
        rich_help_panel="Server",
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        help="Instead of a profile: a model of the catalogue, or a config.json.",
        rich_help_panel="Server",
    ),
]
Hardware = Annotated[
    str | None,
    typer.Option(help="And the device it runs on: h100, a100-80gb ...", rich_help_panel="Server"),
]
Techniques = Annotated[
    list[str] | None,
    typer.Option(
        "--technique",
        metavar="NAME:KEY=VALUE,...",
        help="With --model: tensor-parallel:ways=2, weight-int4 ...; several are applied in turn.",
        rich_help_panel="Server",
    ),
]
EfficiencyText = Annotated[
    str | None,
    typer.Option(
        "--efficiency",
        metavar="NAME=VALUE,...",
        help="Achieved shares of the peaks: compute=0.7,memory=0.85,overhead_s=0.001.",
        rich_help_panel="Server",
    ),
]
Operators = Annotated[
    tuple[Path, Path] | None,
    typer.Option(
        metavar="MLP ATTENTION",
        help="Operator times of that model: two CSV files in Vidur's columns.",
        rich_help_panel="Server",
    ),
]
Phases = Annotated[
    Path | None,
    typer.Option(help="TTFT and TBT tables in Splitwise's columns.", rich_help_panel="Server"),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN=VALUE", help="Which rows of the tables.", rich_help_panel="Server"
    ),
]
Replicas = Annotated[
    int | None, typer.Option(help="Servers behind a router.", min=1, rich_help_panel="Cluster")
]
Router = Annotated[
    str | None,
    typer.Option(help="round-robin, least-tokens, prefix-affinity ...", rich_help_panel="Cluster"),
]
StalenessMs = Annotated[
    float | None, typer.Option(help="Age of the router's signals.", rich_help_panel="Cluster")
]
PrefillDecode = Annotated[
    tuple[int, int] | None,
    typer.Option(
        metavar="P D", help="Servers for prompts and for decodes.", rich_help_panel="Cluster"
    ),
]
LinkGBPerS = Annotated[
    float | None,
    typer.Option(help="Link between prompts and decodes, 10^9 B/s.", rich_help_panel="Cluster"),
]
ClosedLoop = Annotated[
    bool | None,
    typer.Option(
        "--closed-loop/--open-loop",
        help="Send a follow-up after its parent's answer, or at its stamp.",
        rich_help_panel="Workload",
    ),
]

RateScale = Annotated[
    float | None, typer.Option(help="2 = twice the arrival rate.", rich_help_panel="Workload")
]
Rate = Annotated[
    float | None, typer.Option(help="Scale to so many requests/s.", rich_help_panel="Workload")
]
PromptScale = Annotated[
    float, typer.Option(help="Scale prompt lengths.", rich_help_panel="Workload")
]
OutputScale = Annotated[
    float, typer.Option(help="Scale output lengths.", rich_help_panel="Workload")
]
Start = Annotated[float | None, typer.Option(help="Window start, s.", rich_help_panel="Workload")]
End = Annotated[float | None, typer.Option(help="Window end, s.", rich_help_panel="Workload")]
Limit = Annotated[
    int | None, typer.Option(help="Only the first N requests.", rich_help_panel="Workload")
]
SpreadTies = Annotated[
    bool,
    typer.Option(
        "--spread-ties",
        help="Spread equal stamps over the trace's clock.",
        rich_help_panel="Workload",
    ),
]
MaxBadRows = Annotated[
    int, typer.Option(help="Skip and list up to N bad rows.", rich_help_panel="Workload")
]
SessionRate = Annotated[
    float | None,
    typer.Option(help="Sessions of a directory that start per second.", rich_help_panel="Workload"),
]
EstimateCV = Annotated[
    float | None,
    typer.Option(
        help="Error of the declared output lengths (queue_order=sjf).", rich_help_panel="Workload"
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of every random stream.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
Out = Annotated[Path | None, typer.Option(help="Run folder to write.")]

UNLIMITED_TOKENS = 1 << 40


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """Policy options as given; ``over`` lays them over a base configuration."""

    batching: str | None = None
    kv: str | None = None
    reservation: str | None = None
    prefix_cache: bool | None = None
    kv_tokens: str | None = None
    block_tokens: int | None = None
    max_model_len: int | None = None
    max_seqs: int | None = None
    token_budget: int | None = None
    wait_limit_ms: float | None = None
    queue_limit: int | None = None
    preset: str | None = None
    settings: tuple[str, ...] = ()

    def over(self, base: "PolicyConfig") -> "PolicyConfig":
        """The base with the preset, then every option that was given."""
        from app.scenario.settings import with_settings

        return with_settings(base, self.given())

    def given(self) -> dict[str, Any]:
        """Settings of ``PolicyConfig`` that were asked for, options over ``--set`` over preset."""
        from app.scenario.settings import parse_settings
        from policies.presets import find_preset

        given = dict(find_preset(self.preset).policies) if self.preset else {}
        given.update(parse_settings(self.settings, "--set"))
        apart = ("kv_tokens", "wait_limit_ms", "preset", "settings")
        for name in self.__slots__:
            if name not in apart and getattr(self, name) is not None:
                given[name] = getattr(self, name)
        if self.kv_tokens is not None:
            given["kv_tokens"] = parse_kv_tokens(self.kv_tokens)
        if self.wait_limit_ms is not None:
            given["wait_limit_s"] = self.wait_limit_ms / 1000
        return given


def parse_kv_tokens(text: str) -> int:
    """A number of tokens, or 'unlimited'."""
    from workloads.errors import PolicyError

    if text == "unlimited":
        return UNLIMITED_TOKENS
    if not text.isdigit():
        raise PolicyError(f"--kv-tokens: {text!r} is neither a number of tokens nor 'unlimited'")
    return int(text)


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """How to read a trace and which part of it to take, in this order."""

    path: Path | None
    max_bad_rows: int = 0
    spread_ties: bool = False
    start_s: float | None = None
    end_s: float | None = None
    limit: int | None = None
    prompt_scale: float = 1.0
    output_scale: float = 1.0
    rate_scale: float | None = None
    rate_per_s: float | None = None
    seed: int = 0
    session_rate_per_s: float | None = None
    estimate_cv: float | None = None

    def read(self) -> "Trace":
        """The trace, read and transformed.

        Raises ``TraceError`` for a malformed row or an impossible option.
        """
        from workloads.errors import TraceError
        from workloads.reading import SESSION_RATE_PER_S, read_trace

        if self.path is None:
            raise TraceError("no trace: give TRACE, or --scenario FILE")
        trace = read_trace(
            self.path,
            max_bad_rows=self.max_bad_rows,
            seed=self.seed,
            spread_ties=self.spread_ties,
            session_rate_per_s=self.session_rate_per_s or SESSION_RATE_PER_S,
        )
        return self.of(trace)

    def of(self, trace: "Trace") -> "Trace":
        """What they make of a trace that was read already."""
        from workloads.errors import TraceError
        from workloads.transform import (
            at_rate,
            limit,
            scale_rate,
            scale_tokens,
            window,
            with_estimates,
        )

        if self.rate_scale is not None and self.rate_per_s is not None:
            raise TraceError("--rate and --rate-scale exclude each other; give one")
        if self.start_s is not None or self.end_s is not None:
            end_s = float("inf") if self.end_s is None else self.end_s
            trace = window(trace, self.start_s or 0.0, end_s)
        if self.limit is not None:
            trace = limit(trace, self.limit)
        if (self.prompt_scale, self.output_scale) != (1.0, 1.0):
            trace = scale_tokens(trace, prompt=self.prompt_scale, output=self.output_scale)
        if self.rate_scale is not None:
            trace = scale_rate(trace, self.rate_scale)
        if self.rate_per_s is not None:
            trace = at_rate(trace, self.rate_per_s)
        if self.estimate_cv is not None:
            trace = with_estimates(trace, self.estimate_cv, self.seed)
        return trace


def read_or_sample(path: Path | None, **chosen: Any) -> "Trace":
    """The trace at ``path``, or the bundled sample; ``chosen`` as in ``TraceOptions``."""
    from workloads.sample import sample_path

    if path is not None:
        return TraceOptions(path, **chosen).read()
    with sample_path() as sample:
        return TraceOptions(sample, **chosen).read()


Device = Annotated[str, typer.Option(help="auto, cpu or cuda.", rich_help_panel="Engine")]
Dtype = Annotated[str, typer.Option(help="auto, float32 or bfloat16.", rich_help_panel="Engine")]
Threads = Annotated[int, typer.Option(help="Torch threads.", min=1, rich_help_panel="Engine")]


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """Which bundled engine to start."""

    model: str = "base"
    device: str = "auto"
    dtype: str = "auto"
    threads: int = 1
    seed: int = 0


def require_engine() -> None:
    """Raise ``EngineError`` saying how to install it, where the engine's packages are missing."""
    from importlib.util import find_spec

    from workloads.errors import EngineError

    missing = [n for n in ("torch", "starlette", "uvicorn") if find_spec(n) is None]
    if missing:
        raise EngineError(
            f"the bundled engine needs {', '.join(missing)}: pip install 'servetwin[engine]'"
        )
