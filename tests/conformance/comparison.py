"""Two schedulers' steps side by side: how many are equal, and where they part."""

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
