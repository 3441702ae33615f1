"""Options of ``servetwin workload generate``: lengths, sessions, users."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from typer import Option

from servetwin.app.scenario.options.common import KEEP, Overwriting, Seed, ThinkTime
from servetwin.app.scenario.options.distributions import (
    USUAL,
    USUAL_OUTPUTS,
    ArrivalChoice,
    OutputTokens,
    PrefixChoice,
    PromptTokens,
    independent_lengths,
    lengths_of,
    think_time_of,
)
from servetwin.app.scenario.options.groups import given, require_absent
from servetwin.workloads.trace import Trace

if TYPE_CHECKING:
    from servetwin.workloads.generators.arrivals import ArrivalProcess
    from servetwin.workloads.generators.lengths import LengthDistribution, TokenLaw


@dataclass(frozen=True, slots=True)
class LengthOptions:
    """Lengths of prompts and outputs: by distribution, or drawn from a trace."""

    PANEL: ClassVar = "Lengths"

    prompt_tokens: PromptTokens = None
    output_tokens: OutputTokens = None
    lengths_from: Annotated[Path | None, Option()] = None
    """Trace to draw both lengths from instead."""
    jitter: Annotated[float, Option()] = 0.0
    """Sigma of a factor on lengths drawn from a trace."""
    reasoning: Annotated[str | None, Option(metavar="deepseek-r1")] = None
    """How much of an output is reasoning, as in a public trace."""

    def joint(self) -> "LengthDistribution":
        """Return lengths of requests: drawn from a trace, or independently by two distributions."""
        from servetwin.workloads.generators.lengths import EmpiricalLengths
        from servetwin.workloads.reading import read_trace

        if self.lengths_from is None:
            return independent_lengths(self.prompt_tokens, self.output_tokens)
        return EmpiricalLengths.of(read_trace(self.lengths_from), self.jitter)


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Conversations, whose every turn repeats the turns before it."""

    PANEL: ClassVar = "Structure"

    sessions: Annotated[int, Option()] = 20
    """How many conversations (multi-turn, agentic)."""
    context_limit: Annotated[int | None, Option()] = None
    """Compact a conversation that is longer, in tokens."""
    sub_agents: Annotated[int, Option(min=0)] = 0
    """Sub-agents that a turn begins and the next one waits for."""

    def generate(
        self, prefix: PrefixChoice, arrivals: "ArrivalProcess", output: "TokenLaw", seed: int
    ) -> Trace:
        """Return a trace of conversations of the structure that ``prefix`` names."""
        from servetwin.workloads.generators.conversations import (
            agentic,
            generate_conversations,
            multi_turn,
        )

        spec = (
            agentic(self.sessions, arrivals)
            if prefix.name == "agentic"
            else multi_turn(self.sessions, arrivals, output)
        )
        spec = replace(
            spec,
            limit_tokens=self.context_limit or spec.limit_tokens,
            block_tokens=prefix.block_tokens or spec.block_tokens,
            sub_agents=self.sub_agents,
        )
        return generate_conversations(spec, seed)


@dataclass(frozen=True, slots=True)
class UserOptions:
    """Users, each of which sends its next request some time after the last answer."""

    PANEL: ClassVar = "Closed loop"

    closed_loop: Annotated[int, Option()] = 0
    """Number of users, each waits for every answer; 0 for none."""
    each: Annotated[int, Option()] = 10
    """Requests of each user."""
    think_time: ThinkTime = None

    def generate(self, prefix: PrefixChoice, lengths: "LengthDistribution", seed: int) -> Trace:
        """Return a trace of the users' requests."""
        from servetwin.workloads.generators.generate import WorkloadSpec, generate
        from servetwin.workloads.generators.resampled import sent_by_users

        think = think_time_of(self.think_time or "lognormal")
        spec = WorkloadSpec(self.closed_loop * self.each, None, lengths, prefix.prefixes())
        trace = generate(spec, seed)
        return sent_by_users(trace, self.closed_loop, think=think, seed=seed, rounds=self.each)


CONVERSATIONS = ("multi-turn", "agentic")
_OF_A_TRACE = "the lengths are those of --lengths-from; leave it out"
_OF_A_TALK = "conversations of this --structure have lengths of their own; leave it out"


@dataclass(frozen=True, slots=True)
class GenerateOptions:
    """A synthetic trace: independent requests, conversations, or users."""

    out: Annotated[Path, Option()]
    """Trace to write (.jsonl or .jsonl.gz)."""
    arrivals: ArrivalChoice
    lengths: LengthOptions
    prefix: PrefixChoice
    sessions: SessionOptions
    users: UserOptions
    named: Annotated[str | None, Option(metavar="NAME")] = None
    """Options of a named workload; others win over it."""
    requests: Annotated[int, Option()] = 240
    """How many independent requests."""
    samples: Annotated[int, Option(min=1)] = 1
    """Answers wanted to each prompt."""
    seed: Seed = 0
    overwriting: Overwriting = KEEP

    def generate(self) -> Trace:
        """Generate the trace; raises ``ServetwinError`` for options that exclude each other."""
        self._require_read()
        trace = self._drawn()
        if self.samples > 1:
            several = tuple(replace(request, samples=self.samples) for request in trace)
            trace = replace(trace, requests=several)
        if self.lengths.reasoning is not None:
            from servetwin.workloads.generators.generate import with_reasoning

            trace = with_reasoning(trace, self.lengths.reasoning, self.seed)
        if self.named is None:
            return trace
        from servetwin.workloads.generators.named import find_named

        source = f"{self.named}: {find_named(self.named).source}"
        return replace(trace, notes=(*trace.notes, source))

    def _require_read(self) -> None:
        """Raise ``OptionError`` for an option that only another load than this one reads."""
        structure, users, lengths = self.prefix.name, self.users.closed_loop > 0, self.lengths
        talks, drawn = structure in CONVERSATIONS, lengths.lengths_from is not None
        shares, prefixes = structure == "shared-prefix", ("groups", "prefix_tokens", "zipf")
        for is_read, options, why in (
            (talks, given(self.sessions), "is of --structure multi-turn or agentic: give it too"),
            (not talks, given(self.users), "its users hold no conversations; give one of both"),
            (users, given(self.users), "is of --closed-loop: give it too"),
            (not users, given(self.arrivals), "users of --closed-loop send after their answers"),
            (not talks and not users, given(self, "requests"), "is of independent requests"),
            (shares, given(self.prefix, *prefixes), "is of --structure shared-prefix: give it too"),
            (structure != "independent", given(self.prefix, "block_tokens"), "is of a --structure"),
            (self.arrivals.diurnal, given(self.arrivals, "peak_to_trough"), "is of --diurnal"),
            (drawn, given(lengths, "jitter"), "is of --lengths-from: give it too"),
            (not drawn, given(lengths, "prompt_tokens", "output_tokens"), _OF_A_TRACE),
            (not talks, given(lengths, "prompt_tokens", "lengths_from"), _OF_A_TALK),
            (structure != "agentic", given(lengths, "output_tokens"), _OF_A_TALK),
        ):
            if not is_read:
                require_absent(options, why)

    def _drawn(self) -> Trace:
        from servetwin.workloads.generators.generate import WorkloadSpec, generate

        arrivals = self.arrivals.process()
        if self.prefix.name in CONVERSATIONS:
            output = lengths_of(
                self.lengths.output_tokens or USUAL, USUAL_OUTPUTS, "--output-tokens"
            )
            return self.sessions.generate(self.prefix, arrivals, output, self.seed)
        lengths = self.lengths.joint()
        if self.users.closed_loop:
            return self.users.generate(self.prefix, lengths, self.seed)
        prefixes = self.prefix.prefixes()
        return generate(WorkloadSpec(self.requests, arrivals, lengths, prefixes), self.seed)
