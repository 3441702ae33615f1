"""Options that say which part of a trace is taken, and how it is scaled."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import copyfileobj
from tempfile import NamedTemporaryFile
from typing import Annotated, ClassVar

from typer import Option

from servetwin.app.scenario.options.distributions import LANES_FORM, lanes_of
from servetwin.app.scenario.options.groups import given, require_absent
from servetwin.workloads.errors import TraceError
from servetwin.workloads.files import is_directory
from servetwin.workloads.generators.lora_mix import LoraMix, parse_lora_mix
from servetwin.workloads.readers.registry import READERS
from servetwin.workloads.tables.mapping import parse_mapping
from servetwin.workloads.tokenizer import LocalTokenizer
from servetwin.workloads.trace import Trace

Columns = Annotated[
    str | None,
    Option(
        "--map",
        metavar="QUANTITY=COLUMN,...",
        help="Columns of your own table: arrival_s=ts,prompt_tokens=in,output_tokens=out,...; else "
        "recognised.",
        rich_help_panel="Workload",
    ),
]
Limit = Annotated[int | None, Option(help="Only the first N requests.", rich_help_panel="Workload")]


@dataclass(frozen=True, slots=True)
class TraceShape:
    """What a load test, too, takes of a trace."""

    PANEL: ClassVar = "Workload"

    reader: Annotated[
        str | None,
        Option(help=f"Format: {', '.join(READERS)}, path.py:Class; else seen from the file."),
    ] = None
    max_bad_rows: Annotated[int, Option()] = 0
    """Skip and list up to N bad rows."""
    spread_ties: Annotated[bool, Option("--spread-ties")] = False
    """Spread equal stamps over the trace's clock."""
    start_s: Annotated[float | None, Option("--start")] = None
    """Window start, s."""
    end_s: Annotated[float | None, Option("--end")] = None
    """Window end, s."""
    prompt_scale: Annotated[float, Option()] = 1.0
    """Scale prompt lengths."""
    output_scale: Annotated[float, Option()] = 1.0
    """Scale output lengths."""
    rate_scale: Annotated[float | None, Option()] = None
    """2 = twice the arrival rate."""
    reasoning_budget: Annotated[int | None, Option(metavar="TOKENS", min=0)] = None
    """At most so many tokens of reasoning in an answer."""
    compact: Annotated[int | None, Option(metavar="TOKENS", min=1)] = None
    """A summary replaces the history of a session beyond so many tokens."""
    summary_tokens: Annotated[int, Option(min=1)] = 2000
    """Length of these summaries."""
    tokenizer: Annotated[str | None, Option(metavar="PATH")] = None
    """Local tokenizer.json, for exact lengths of prompts."""
    columns: Columns = None
    lora_modules: Annotated[str | None, Option(metavar="NAME=SHARE,...")] = None
    """Ask these models in such shares, the rest of the base model."""
    lanes: Annotated[str | None, Option(metavar=LANES_FORM)] = None
    """Replay the sessions in N lanes against a warm cache, for example 8:agentx or
    8:idle=10,from=0.25,to=0.75,duration=1800 (s)."""

    def lora(self, seed: int) -> LoraMix | None:
        """Return the mix of models; raises ``LoadTestError`` for what cannot be read."""
        return None if self.lora_modules is None else parse_lora_mix(self.lora_modules, seed)


WHOLE_TRACE = TraceShape()


@dataclass(frozen=True, slots=True)
class TraceOptions(TraceShape):
    """How to read the trace at ``path`` and which part of it to take."""

    limit: Limit = None
    rate_per_s: Annotated[float | None, Option("--rate")] = None
    """Scale the arrivals to N requests/s."""
    session_rate_per_s: Annotated[float | None, Option("--session-rate")] = None
    """Sessions of a directory that start per second."""
    estimate_cv: Annotated[float | None, Option()] = None
    """Error of the declared output lengths (queue_order=sjf)."""
    path: Path | None = None
    seed: int = 0
    header_columns: Mapping[str, str] | None = None

    def read(self) -> Trace:
        """Read the trace and transform it.

        Raises ``TraceError`` for a malformed row or an impossible option.
        """
        from servetwin.workloads.reading import SESSION_RATE_PER_S, read_first

        if self.path is None:
            raise TraceError("no trace: give TRACE, or --scenario FILE")
        if str(self.path) == "-":
            with NamedTemporaryFile() as file:
                copyfileobj(sys.stdin.buffer, file)
                file.flush()
                try:
                    trace = replace(self, path=Path(file.name)).read()
                except TraceError as error:
                    raise TraceError(str(error).replace(file.name, "standard input")) from None
            return replace(trace, source="standard input")
        if not is_directory(self.path):
            require_absent(given(self, "session_rate_per_s"), "is of a directory of sessions")
        has_window = self.start_s is not None or self.end_s is not None
        trace = read_first(
            self.path,
            None if has_window else self.limit,
            max_bad_rows=self.max_bad_rows,
            seed=self.seed,
            spread_ties=self.spread_ties,
            format=self.reader,
            session_rate_per_s=self.session_rate_per_s or SESSION_RATE_PER_S,
            header_columns=self.header_columns,
            columns=None if self.columns is None else parse_mapping(self.columns),
        )
        return self.transform(trace)

    def check_rates(self) -> None:
        """Raise ``TraceError`` where two options scale the rate."""
        if self.rate_scale is not None and self.rate_per_s is not None:
            raise TraceError("--rate and --rate-scale exclude each other; give one")

    def read_or_sample(self) -> Trace:
        """Read the trace; without a path, the bundled sample."""
        from servetwin.workloads.reading import sample_path

        if self.path is not None:
            return self.read()
        if self.columns is not None:
            raise TraceError("--map: give the trace whose columns it names")
        with sample_path() as sample:
            return replace(self, path=sample).read()

    def transform(self, trace: Trace) -> Trace:
        """Return the part of ``trace`` that the options choose, scaled as they say."""
        from servetwin.workloads import transform
        from servetwin.workloads.graphs.compaction import compact

        self.check_rates()
        if self.compact is None:
            require_absent(given(self, "summary_tokens"), "is of --compact: give it too")
        if self.start_s is not None or self.end_s is not None:
            end_s = float("inf") if self.end_s is None else self.end_s
            whole, trace = trace, transform.window(trace, self.start_s or 0.0, end_s)
            if len(whole) and not len(trace):
                span_s = whole.requests[-1].arrival_s
                raise TraceError(f"--start, --end: no request; the trace is {span_s:.6g} s long")
        if self.limit is not None:
            trace = transform.limit(trace, self.limit)
        if self.tokenizer is not None:
            trace = LocalTokenizer(Path(self.tokenizer)).counted(trace)
        if self.prompt_scale != 1.0 and any(request.prompt is not None for request in trace):
            raise TraceError("--prompt-scale: real prompts have the lengths that they have")
        if (self.prompt_scale, self.output_scale) != (1.0, 1.0):
            scales = {"prompt": self.prompt_scale, "output": self.output_scale}
            trace = transform.scale_tokens(trace, **scales)
        if self.reasoning_budget is not None:
            trace = transform.limit_reasoning(trace, self.reasoning_budget)
        if self.compact is not None:
            trace = compact(trace, self.compact, self.summary_tokens)
        if self.rate_scale is not None:
            trace = transform.scale_rate(trace, self.rate_scale)
        if self.rate_per_s is not None:
            trace = transform.at_rate(trace, self.rate_per_s, self.seed)
        if self.estimate_cv is not None:
            trace = transform.with_estimates(trace, self.estimate_cv, self.seed)
        if (mix := self.lora(self.seed)) is not None:
            trace = mix.over(trace)
        if self.lanes is None:
            return trace
        if (self.rate_scale, self.rate_per_s) != (None, None):
            raise TraceError("--lanes: a lane waits for its answers; leave the rate out")
        return transform.in_lanes(trace, lanes_of(self.lanes, self.seed))
