"""Two schedulers' steps side by side: how many are equal, and where they part."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from tests.conformance.workload import Step, Workload


@dataclass(frozen=True, slots=True)
class Comparison:
    """How far two schedulers agree on a workload."""

    workload: Workload
    steps: int
    """Of the scheduler that we compare with."""
    equal: int
    """Leading steps that are equal in everything."""
    preemptions: int
    cached_tokens: int
    difference: str | None
    """What the first unequal step is about; None where every step is equal."""

    def line(self) -> str:
        """Return the outcome in one line."""
        counted = f"{self.preemptions} preemptions, {self.cached_tokens} cached tokens"
        line = f"{self.workload.name}, {self.workload.groups}: {self.equal} of {self.steps} steps"
        line += f" ({', '.join(_rules(self.workload))}; {counted})"
        return line if self.difference is None else f"{line}\n    {self.difference}"


def by_mode(found: list[Comparison]) -> Iterator[str]:
    """Yield a row of a table for each rule of the servers: how many workloads and steps agree."""
    by_rule: defaultdict[str, list[Comparison]] = defaultdict(list)
    for one in found:
        for rule in ["all", *_rules(one.workload)[_LIMITS:]]:
            by_rule[rule.rstrip(" .0123456789")].append(one)
    yield "| rule | workloads | steps | preemptions | cached tokens |\n|---|---|---|---|---|"
    for rule, chosen in sorted(by_rule.items()):
        equal = sum(one.difference is None for one in chosen)
        steps = f"{sum(o.equal for o in chosen):,} of {sum(o.steps for o in chosen):,}"
        counts = [(one.preemptions, one.cached_tokens) for one in chosen]
        preempted, cached = map(sum, zip(*counts, strict=True))
        yield f"| {rule} | {equal} of {len(chosen)} | {steps} | {preempted:,} | {cached:,} |"


_LIMITS = 3
"""Rules that every workload has, before the others."""


def _rules(workload: Workload) -> list[str]:
    """Return the settings of a server and the habits of its clients, each in a few words."""
    rules = {
        f"blocks {workload.blocks}": True,
        f"sequences {workload.max_seqs}": True,
        f"budget {workload.token_budget}": True,
        "ahead": workload.decide_ahead,
        "in step": not workload.decide_ahead,
        "groups in step": workload.groups != "full" and not workload.decide_ahead,
        "groups ahead": workload.groups != "full" and workload.decide_ahead,
        "priorities": workload.priorities,
        "prefix cache": workload.prefix_cache,
        "no gate": not workload.full_prompt_gate,
        "whole prompts": not workload.chunk_prompts,
        f"long prefill {workload.long_prefill_tokens}": workload.long_prefill_tokens > 0,
        "adaptive long prefill": workload.long_prefill_adaptive,
        "fewer active sequences": workload.spare_seqs > 0,
        f"queued tokens {workload.queued_tokens}": workload.queued_tokens is not None,
        f"watermark {workload.watermark:g}": workload.watermark > 0,
        f"drafts {workload.draft_rows}": workload.draft_rows > 0,
        "groups with drafts": workload.groups != "full" and workload.draft_rows > 0,
        f"draft slots {workload.draft_slots}": workload.draft_slots > 0,
        "repeated answers": workload.repeats,
        "several answers": any(one.n > 1 for one in workload.requests),
        "stops": any(one.stops for one in workload.requests),
        "aborts": any(one.abort_after is not None for one in workload.requests),
    }
    return [rule for rule, holds in rules.items() if holds]


def compare(workload: Workload, theirs: list[Step], ours: list[Step]) -> Comparison:
    """Return how far ``ours`` agrees with ``theirs``."""
    equal, difference = 0, None
    for their, our in zip_longest(theirs, ours):
        if their != our:
            difference = f"step {equal}: {_explained(their, our)}"
            break
        equal += 1
    seen = set[str]()
    cached_tokens = 0
    for step in theirs:
        for name, (start, _) in step.scheduled.items():
            cached_tokens += start if name not in seen else 0
            seen.add(name)
        seen.difference_update(step.preempted)
    preemptions = sum(len(step.preempted) for step in theirs)
    return Comparison(workload, len(theirs), equal, preemptions, cached_tokens, difference)


def _explained(their: Step | None, our: Step | None) -> str:
    """Say in what a step differs, the cause before its effects."""
    if their is None or our is None:
        return f"the {'other' if our is None else 'own'} scheduler goes on, one has ended"
    if their.preempted != our.preempted:
        return f"preempted {their.preempted}, here {our.preempted}"
    for name in their.scheduled.keys() | our.scheduled.keys():
        theirs, ours = their.scheduled.get(name), our.scheduled.get(name)
        if theirs != ours:
            return f"{name} computes {_positions(theirs)}, here {_positions(ours)}"
    if their.finished != our.finished:
        return f"finished {their.finished}, here {our.finished}"
    return f"{their.free_blocks} free blocks, here {our.free_blocks}"


def _positions(entry: list[int] | None) -> str:
    return f"{entry[1]} positions from {entry[0]} on" if entry else "nothing"
