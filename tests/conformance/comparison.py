"""Two schedulers' steps side by side: how many are equal, and where they part."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from tests.conformance.workload import BLOCK_TOKENS, Step, Workload


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
        workload = self.workload
        rules = [
            "priority" if workload.priorities else "fcfs",
            f"{workload.blocks} blocks",
            f"{workload.max_seqs} sequences",
            f"budget {workload.token_budget}",
            *([] if workload.chunk_prompts else ["whole prompts"]),
            *(["ahead"] if workload.decide_ahead else []),
            *(["prefix cache"] if workload.prefix_cache else []),
            *([] if workload.full_prompt_gate else ["no gate"]),
            *([f"long prefill {n}"] if (n := workload.long_prefill_tokens) else []),
            *([f"watermark {workload.watermark:g}"] if workload.watermark else []),
        ]
        counted = f"{self.preemptions} preemptions, {self.cached_tokens} cached tokens"
        line = f"{workload.name}: {self.equal} of {self.steps} steps"
        line += f" ({', '.join(rules)}; {counted})"
        return line if self.difference is None else f"{line}\n    {self.difference}"


def by_mode(found: list[Comparison]) -> Iterator[str]:
    """Yield a row of a table for each mode of the servers: how many workloads and steps agree."""
    modes = dict.fromkeys(mode for one in found for mode in _modes(one.workload))
    yield "| mode | workloads | steps | preemptions | cached tokens |\n|---|---|---|---|---|"
    for mode in ["all", *sorted(modes)]:
        chosen = [one for one in found if mode == "all" or mode in _modes(one.workload)]
        equal = sum(one.difference is None for one in chosen)
        steps = f"{sum(o.equal for o in chosen):,} of {sum(o.steps for o in chosen):,}"
        counts = (
            f"{sum(o.preemptions for o in chosen):,} | {sum(o.cached_tokens for o in chosen):,}"
        )
        yield f"| {mode} | {equal} of {len(chosen)} | {steps} | {counts} |"


def _modes(workload: Workload) -> list[str]:
    longest = max(len(one.prompt) + len(one.answer) for one in workload.requests)
    modes = {
        "decided step by step": not workload.decide_ahead,
        "decided a step ahead": workload.decide_ahead,
        "priorities": workload.priorities,
        "prefix cache": workload.prefix_cache,
        "first chunk opens the gate": not workload.full_prompt_gate,
        "whole prompts": not workload.chunk_prompts,
        "long prompts slowed": workload.long_prefill_tokens > 0,
        "watermark": workload.watermark > 0,
        "memory below two requests": workload.blocks * BLOCK_TOKENS < 2 * longest,
        "several answers": any(one.n > 1 for one in workload.requests),
        "answers that stop": any(one.stops for one in workload.requests),
        "aborts": any(one.abort_after is not None for one in workload.requests),
        "answers repeated while they run": workload.repeats,
    }
    return [mode for mode, is_on in modes.items() if is_on]


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
