"""Conversations whose prompts grow: chats of several turns, and agents that call tools."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, islice, pairwise, zip_longest
from math import log

import numpy as np

from servetwin.workloads.block_ids import BlockIds, Ids
from servetwin.workloads.errors import TraceError
from servetwin.workloads.generators.arrivals import ArrivalProcess, describe
from servetwin.workloads.generators.generate import (
    FOLLOWERS_NOTE,
    SOURCE,
    arrival_times_s,
    random_streams,
    require_possible,
)
from servetwin.workloads.generators.lengths import LognormalTokens, TokenLaw
from servetwin.workloads.generators.pauses import LognormalPause, MixedPause, PauseDistribution
from servetwin.workloads.graphs.task_graph import earliest_arrivals_s
from servetwin.workloads.request import Request
from servetwin.workloads.rows import counted
from servetwin.workloads.trace import Trace, as_columns


@dataclass(frozen=True, slots=True)
class ConversationSpec:
    """How conversations start, how their prompts grow, and when they grow too long.

    All prompts begin with the same head of ``head_tokens`` (tools, system prompt). The first adds
    its opening; every other one extends the prompt and the answer before it by fresh tokens. Where
    prompt and output would pass ``limit_tokens``, all but the head is compacted: the prompt becomes
    ``compacted_share`` of the limit, head included, and the fresh tokens; nothing past the head is
    shared with what came before.
    """

    conversations: int
    arrivals: ArrivalProcess
    turns: TokenLaw
    opening: TokenLaw
    fresh: TokenLaw
    output: TokenLaw
    pause: PauseDistribution
    head_tokens: int
    limit_tokens: int | None = None
    compacted_share: float = 0.3
    block_tokens: int = 16
    sub_agents: int = 0
    """Conversations that each turn but the last begins, and the next one waits for."""

    def __post_init__(self) -> None:
        if self.conversations < 1:
            raise TraceError(f"a trace has at least 1 conversation, not {self.conversations}")
        if self.sub_agents < 0:
            raise TraceError(f"a turn has 0 or more sub-agents, not {self.sub_agents}")
        if self.head_tokens < 0 or self.block_tokens < 1:
            sizes = f"{self.head_tokens} and {self.block_tokens}"
            raise TraceError(f"a head has 0 or more tokens and a block 1 or more, not {sizes}")
        if not 0 <= self.compacted_share < 1:
            raise TraceError(f"the compacted share is 0 to 1, not {self.compacted_share:g}")
        if self.limit_tokens is not None and self.limit_tokens < self.head_tokens + 2:
            no_room = f"leaves no room after a head of {self.head_tokens}"
            raise TraceError(f"a limit of {self.limit_tokens} tokens {no_room}")

    def describe(self) -> str:
        """Return all of it, as a note of the trace."""
        parts = [
            f"{counted(self.conversations, 'conversation')}, {describe(self.arrivals)}",
            f"lengths of conversations {self.turns.describe('turn')}",
            f"a head of {counted(self.head_tokens, 'token')}",
            f"first messages {self.opening.describe()}",
            f"later ones {self.fresh.describe()}",
            f"outputs {self.output.describe()}",
            f"pauses {describe(self.pause)}",
        ]
        if self.sub_agents:
            turns = SUB_AGENT_TURNS.describe("turn")
            parts.append(f"{counted(self.sub_agents, 'sub-agent')} a turn, lengths {turns}")
        if self.limit_tokens is not None:
            share = f"{100 * self.compacted_share:.3g} %"
            parts.append(f"compacted to {share} beyond {counted(self.limit_tokens, 'token')}")
        return "; ".join(parts)


# The one sub-agent of the public sessions has 11 turns; these have 8 in the median.
SUB_AGENT_TURNS = LognormalTokens(log(8), 0.6)
# How long tools run: 1 s in the median.
TOOL = LognormalPause(1.0)


def multi_turn(
    conversations: int, arrivals: ArrivalProcess, output: TokenLaw, limit_tokens: int | None = None
) -> ConversationSpec:
    """Return chats: 3.5 turns on average, half of them at most 2, think times of minutes."""
    message = LognormalTokens(log(60), 1.2)
    return ConversationSpec(
        conversations,
        arrivals,
        turns=LognormalTokens(log(1.8), 1.12),
        opening=message,
        fresh=message,
        output=output,
        pause=LognormalPause(),
        head_tokens=512,
        limit_tokens=limit_tokens,
    )


def agentic(conversations: int, arrivals: ArrivalProcess) -> ConversationSpec:
    """Return sessions of coding agents with the figures of public session traces.

    Medians: 46 steps, 24 k tokens in the first prompt, 1,050 fresh tokens per step (90 %: 7,000),
    216 output tokens (99 %: 3,700), 1 s for a tool; a human answers 15 % of the steps.
    """
    return ConversationSpec(
        conversations,
        arrivals,
        turns=LognormalTokens(log(46), 0.916),
        opening=LognormalTokens(log(9_000), 0.5),
        fresh=LognormalTokens(log(1_050), 1.48),
        output=LognormalTokens(log(216), 1.22),
        pause=MixedPause(TOOL, LognormalPause(120.0), 0.15),
        head_tokens=15_000,
        limit_tokens=200_000,
        block_tokens=64,
    )


def generate_conversations(spec: ConversationSpec, seed: int) -> Trace:
    """Generate the trace of a specification; the same seed gives the same trace.

    A turn has its conversation as ``session_id``, the turn before as its parent and the pause
    since as ``delay_s``; after sub-agents it waits for their last turns too. There is one id per
    full block of a prompt, and of an answer that the next turn repeats. Each distribution has its
    own random stream. Raises TraceError for a negative seed.
    """
    streams = iter(random_streams(seed, 6))
    starts_s = arrival_times_s(spec.arrivals, spec.conversations, next(streams))
    turns_rng = next(streams)
    turns = spec.turns.sample(spec.conversations, turns_rng)
    launched = spec.sub_agents * int((turns - 1).sum())
    require_possible(launched + int(turns.sum()))
    turns = np.concatenate([turns, SUB_AGENT_TURNS.sample(launched, turns_rng)])
    openings = spec.opening.sample(len(turns), next(streams))
    total = int(turns.sum())
    added = spec.fresh.sample(total, next(streams))
    firsts = np.cumsum(turns) - turns
    added[firsts] = openings + spec.head_tokens
    outputs = spec.output.sample(total, next(streams)).tolist()
    pauses_rng = next(streams)
    own = int(turns[: spec.conversations].sum())
    pauses_s = np.concatenate(
        [spec.pause.sample(own, pauses_rng), TOOL.sample(total - own, pauses_rng)]
    )
    steps = zip(added.tolist(), outputs, pauses_s.round(6).tolist(), strict=True)
    contexts = _Contexts(spec)
    begun = enumerate(zip_longest(starts_s.tolist(), turns.tolist(), fillvalue=0.0), 1)
    conversations = [
        list(_conversation(number, start_s, islice(steps, int(length)), contexts))
        for number, (start_s, length) in begun
    ]
    if launched:
        requests = _with_sub_agents(conversations, spec)
    else:
        requests = list(chain.from_iterable(conversations))
    requests.sort(key=lambda request: request.arrival_s)
    return Trace(tuple(requests), SOURCE, notes=(f"{spec.describe()}; seed {seed}", FOLLOWERS_NOTE))


def _with_sub_agents(
    conversations: Sequence[list[Request]], spec: ConversationSpec
) -> list[Request]:
    """Return all requests; conversations beyond those of the specification are of sub-agents."""
    requests: list[Request] = []
    others = iter(conversations[spec.conversations :])
    for turns in conversations[: spec.conversations]:
        requests.append(turns[0])
        for before, after in pairwise(turns):
            awaited = [before.request_id]
            for first, *rest in islice(others, spec.sub_agents):
                spawned = replace(first, parent_ids=(before.request_id,), delay_s=0.0)
                requests += [spawned, *rest]
                awaited.append(requests[-1].request_id)
            requests.append(replace(after, parent_ids=tuple(awaited)))
    arrivals_s = earliest_arrivals_s(requests)
    earliest_s = [arrivals_s[request.request_id] for request in requests]
    return list(as_columns(requests).with_columns(arrival_s=earliest_s))


def _conversation(
    number: int, start_s: float, steps: Iterator[tuple[int, int, float]], contexts: "_Contexts"
) -> Iterator[Request]:
    arrival_s = start_s
    before: Request | None = None
    contexts.begin()
    for turn, (added, drawn_output, pause_s) in enumerate(steps):
        if turn:
            arrival_s = round(arrival_s + pause_s, 6)
        prompt_tokens, output_tokens = contexts.extend(added, drawn_output)
        request = Request(
            f"{SOURCE}:{number}.{turn}",
            arrival_s,
            prompt_tokens,
            output_tokens,
            contexts.block_ids(),
            contexts.block_tokens,
            session_id=f"{SOURCE}:{number}",
            parent_ids=(before.request_id,) if before is not None else (),
            turn=turn,
            delay_s=pause_s if turn else None,
            shared_prefix_tokens=contexts.head_tokens or None,
        )
        if before is not None:
            yield contexts.answered(before)
        before = request
    if before is not None:
        yield before


class _Contexts:
    """The context of one conversation at a time: its length and the ids of its full blocks."""

    def __init__(self, spec: ConversationSpec) -> None:
        self.block_tokens = spec.block_tokens
        self._limit = spec.limit_tokens
        self.head_tokens = spec.head_tokens
        kept_tokens = int(spec.compacted_share * (spec.limit_tokens or 0))
        self._compacted_tokens = max(spec.head_tokens, kept_tokens)
        self._head_ids = range(spec.head_tokens // spec.block_tokens)
        self._unique_ids = count(len(self._head_ids))

    def begin(self) -> None:
        """Start with an empty prompt, before the first turn."""
        self._prompt_tokens = self._answered_tokens = 0
        self._compacted = False
        self._ids = BlockIds.of(self._head_ids)

    def extend(self, added: int, output: int) -> tuple[int, int]:
        """Return the prompt and output tokens of the next turn, within the limit."""
        prompt = self._answered_tokens + added
        if self._limit is not None:
            output = min(output, self._limit - self.head_tokens - 1)
            self._compacted = prompt + output > self._limit
            if self._compacted:
                self._ids = BlockIds.of(self._head_ids)
                prompt = min(self._limit - output, self._compacted_tokens + added)
        self._prompt_tokens, self._answered_tokens = prompt, prompt + output
        return prompt, output

    def block_ids(self) -> Ids:
        """Return one id per full block of the prompt."""
        blocks = self._prompt_tokens // self.block_tokens
        self._ids += islice(self._unique_ids, max(0, blocks - len(self._ids)))
        return self._ids[:blocks]

    def answered(self, before: Request) -> Request:
        """Return the turn before with the ids of its answer, where the present prompt has them."""
        if self._compacted:
            return before
        first, end = before.prompt_tokens, before.total_tokens
        ids = self._ids[first // self.block_tokens : end // self.block_tokens]
        return replace(before, answer_block_ids=ids)
