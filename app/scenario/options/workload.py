"""Options of ``servetwin workload generate``: lengths, sessions, users, ServeGen."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from typer import Option

from servetwin.app.scenario.options.common import KEEP, Overwriting, Seed
from servetwin.app.scenario.options.distributions import (
    DEFAULT_OUTPUT,
    DEFAULT_PROMPT,
    LENGTHS,
    THINK_TIMES,
    ArrivalChoice,
    LengthChoice,
    PrefixChoice,
    arrivals_of,
    lengths_of,
    think_time_of,
)
from servetwin.workloads.errors import TraceError
from servetwin.workloads.trace import Trace

if TYPE_CHECKING:
    from servetwin.workloads.generators.lengths import LengthDistribution


@dataclass(frozen=True, slots=True)
class LengthOptions:
    """Lengths of prompts and outputs: by distribution, or drawn from a trace."""

    PANEL: ClassVar = "Lengths"

    prompt_law: Annotated[
        str, Option(help=f"{', '.join(LENGTHS)}; with settings: uniform:mean=99.")
    ] = DEFAULT_PROMPT.name
    prompt_mean: Annotated[float, Option()] = DEFAULT_PROMPT.mean_tokens
    """Mean prompt tokens."""
    prompt_cv: Annotated[float, Option()] = DEFAULT_PROMPT.cv
    """CV of lognormal, uniform, pareto prompts."""
    prompt_max: Annotated[int | None, Option()] = None
    """Cap of the prompts."""
    output_law: Annotated[str, Option(help=f"{', '.join(LENGTHS)}; with settings as above.")] = (
        DEFAULT_OUTPUT.name
    )
    output_mean: Annotated[float, Option()] = DEFAULT_OUTPUT.mean_tokens
    """Mean output tokens."""
    output_cv: Annotated[float, Option()] = DEFAULT_OUTPUT.cv
    """CV of lognormal, uniform, pareto outputs."""
    output_max: Annotated[int | None, Option()] = None
    """Cap of the outputs."""
    length_zipf: Annotated[float, Option()] = DEFAULT_PROMPT.zipf
    """Exponent of zipf lengths."""
    tail_alpha: Annotated[float, Option()] = DEFAULT_PROMPT.tail_alpha
    """Index of the tail above the 95 % point (pareto)."""
    fixed: Annotated[bool, Option("--fixed")] = False
    """Every length is its mean."""
    lengths_from: Annotated[Path | None, Option()] = None
    """Trace to draw lengths from."""
    jitter: Annotated[float, Option()] = 0.0
    """Sigma of a factor on lengths drawn from a trace."""

    def choice(self, part: str) -> LengthChoice:
        """Return the choice of lengths of a part, ``prompt`` or ``output``.

        Raises ``TraceError`` for an unknown name.
        """
        law, mean, cv, most = (getattr(self, f"{part}_{x}") for x in ("law", "mean", "cv", "max"))
        choice = LengthChoice(part, "fixed", mean, cv, most, self.length_zipf, self.tail_alpha)
        return lengths_of("fixed" if self.fixed else law, choice, f"--{part}-law")

    def joint(self, prompt: LengthChoice, output: LengthChoice) -> "LengthDistribution":
        """Return lengths of requests: drawn from a trace, or independently by the two choices."""
        from servetwin.workloads.generators.lengths import EmpiricalLengths, IndependentLengths
        from servetwin.workloads.reading import read_trace

        if self.lengths_from is None:
            return IndependentLengths(prompt.distribution(), output.distribution())
        if self.fixed:
            raise TraceError("--fixed and --lengths-from exclude each other; give one")
        return EmpiricalLengths.of(read_trace(self.lengths_from), self.jitter)


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Conversations, whose every turn repeats the turns before it."""

    PANEL: ClassVar = "Structure"

    sessions: Annotated[int, Option()] = 20
    """How many conversations (multi-turn, agentic)."""
    context_limit: Annotated[int | None, Option()] = None
    """Compact a conversation that is longer, in tokens."""

    def generate(
        self, prefix: PrefixChoice, arrivals: ArrivalChoice, output: LengthChoice, seed: int
    ) -> Trace:
        """Return a trace of conversations of the structure that ``prefix`` names."""
        from servetwin.workloads.generators.conversations import (
            agentic,
            generate_conversations,
            multi_turn,
        )

        spec = (
            agentic(self.sessions, arrivals.process())
            if prefix.name == "agentic"
            else multi_turn(self.sessions, arrivals.process(), output.distribution())
        )
        limit_tokens = self.context_limit or spec.limit_tokens
        block_tokens = prefix.block_tokens or spec.block_tokens
        spec = replace(spec, limit_tokens=limit_tokens, block_tokens=block_tokens)
        return generate_conversations(spec, seed)


@dataclass(frozen=True, slots=True)
class UserOptions:
    """Users, each of which sends its next request some time after the last answer."""

    PANEL: ClassVar = "Closed loop"

    closed_loop: Annotated[int, Option()] = 0
    """Number of users, each waits for every answer; 0 for none."""
    each: Annotated[int, Option()] = 10
    """Requests of each user."""
    think: Annotated[str, Option(help=" or ".join(THINK_TIMES))] = "lognormal"
    think_time_s: Annotated[float, Option("--think-time")] = 120.0
    """Median (lognormal) or mean think time."""

    def generate(self, prefix: PrefixChoice, lengths: "LengthDistribution", seed: int) -> Trace:
        """Return a trace of the users' requests."""
        from servetwin.workloads.generators.generate import ClosedLoopSpec, generate_closed_loop

        key = "mean" if self.think == "exponential" else "median"
        think = think_time_of(f"{self.think}:{key}={self.think_time_s!r}", "--think")
        spec = ClosedLoopSpec(self.closed_loop, self.each, lengths, think, prefix.prefixes())
        return generate_closed_loop(spec, seed)


@dataclass(frozen=True, slots=True)
class ServeGenOptions:
    """Clients as ServeGen publishes them."""

    PANEL: ClassVar = "ServeGen"

    servegen: Annotated[Path | None, Option()] = None
    """Folder of ServeGen clients."""
    client: Annotated[tuple[str, ...], Option()] = ()
    """Only this client; repeatable."""
    start: Annotated[float, Option()] = 0.0
    """Start in the clients' windows, s."""
    span: Annotated[float, Option()] = 600.0
    """Seconds to generate."""
    rate_scale: Annotated[float, Option()] = 1.0
    """Times the clients' rates."""

    def generate(self, folder: Path, seed: int) -> Trace:
        """Return a trace of the clients in ``folder``."""
        from servetwin.workloads.generators.servegen import generate_servegen, read_clients

        clients = read_clients(folder, list(self.client))
        return generate_servegen(clients, seed, self.start, self.span, self.rate_scale)


CONVERSATIONS = ("multi-turn", "agentic")


@dataclass(frozen=True, slots=True)
class GenerateOptions:
    """A synthetic trace: independent requests, conversations, users, or clients of ServeGen."""

    out: Annotated[Path, Option()]
    """Trace to write (.jsonl or .jsonl.gz)."""
    arrivals: ArrivalChoice
    lengths: LengthOptions
    prefix: PrefixChoice
    sessions: SessionOptions
    users: UserOptions
    servegen: ServeGenOptions
    named: Annotated[str | None, Option(metavar="NAME")] = None
    """Options of a named workload; others win over it."""
    requests: Annotated[int, Option()] = 240
    """How many independent requests."""
    samples: Annotated[int, Option(min=1)] = 1
    """Answers wanted to each prompt."""
    seed: Seed = 0
    overwriting: Overwriting = KEEP

    def generate(self) -> Trace:
        """Generate the trace; raises ``TraceError`` for options that exclude each other."""
        structure, clients = self.prefix.name, self.servegen.servegen
        sources = {
            f"--structure {structure}": structure in CONVERSATIONS,
            "--closed-loop": bool(self.users.closed_loop),
            "--servegen": clients is not None,
        }
        chosen = [option for option, is_chosen in sources.items() if is_chosen]
        if len(chosen) > 1:
            raise TraceError(f"{' and '.join(chosen)} exclude each other; give one")
        if clients is not None:
            return self.servegen.generate(clients, self.seed)
        trace = self._drawn()
        if self.samples > 1:
            several = tuple(replace(request, samples=self.samples) for request in trace)
            trace = replace(trace, requests=several)
        if self.named is None:
            return trace
        from servetwin.workloads.generators.named import find_named

        source = f"{self.named}: {find_named(self.named).source}"
        return replace(trace, notes=(*trace.notes, source))

    def _drawn(self) -> Trace:
        from servetwin.workloads.generators.generate import WorkloadSpec, generate

        prompt, output = self.lengths.choice("prompt"), self.lengths.choice("output")
        arrivals = arrivals_of(self.arrivals.name, self.arrivals)
        if self.prefix.name in CONVERSATIONS:
            return self.sessions.generate(self.prefix, arrivals, output, self.seed)
        lengths = self.lengths.joint(prompt, output)
        if self.users.closed_loop:
            return self.users.generate(self.prefix, lengths, self.seed)
        prefixes = self.prefix.prefixes()
        return generate(
            WorkloadSpec(self.requests, arrivals.process(), lengths, prefixes), self.seed
        )
