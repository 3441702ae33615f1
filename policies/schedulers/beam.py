"""Beam search: the answers to a prompt are beams, one of which gives way to a fork in every step.

Of the continuations of all beams the best survive, so that some beams go on twice and others end.
A simulation knows no scores. It takes the beam that has gone on longest without a fork to be the
worst, and the first one to be the best (vLLM, SOSP 2023, section 4.4 and figure 9).
"""

from servetwin.policies.batch import Batch
from servetwin.policies.protocols import Refusal
from servetwin.policies.schedulers.continuous import ContinuousBatching
from servetwin.policies.schedulers.forking import share
from servetwin.policies.sequence import Sequence, Siblings
from servetwin.workloads.native_class import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class BeamSearch(ContinuousBatching):
    """Continuous batching in which a request's ``samples`` are beams, all in the same steps.

    A fork shares all full blocks and copies a partly filled last one (copy-on-write). A request
    with one sample decodes as in continuous batching.
    """

    def add(self, seq: Sequence) -> Refusal | None:
        """Queue a sequence, or return why it is refused: its beams need slots, and blocks."""
        if seq.samples > 1 and self.memory.layout == "contiguous":
            return Refusal("unsupported", "beams share blocks, regions cannot; use kv: paged")
        if seq.samples > self.config.max_seqs:
            reason = (
                f"{seq.samples} beams want as many slots, and max_seqs is {self.config.max_seqs}"
            )
            return Refusal("unsupported", reason)
        return super().add(seq)

    def complete(self, batch: Batch, steps: int = 1) -> list[Sequence]:
        """Advance every sequence, then fork each request's best beam in the place of its worst."""
        finished = super().complete(batch, steps)
        for siblings, beams in self._beams().items():
            if len(beams) > 1:
                self._replace_worst(siblings, beams)
        return finished

    def repeatable_steps(self, batch: Batch) -> int:
        """Return 1 where beams fork after the step, else as in continuous batching."""
        forks = any(len(beams) > 1 for beams in self._beams().values())
        return 1 if forks else super().repeatable_steps(batch)

    def _beams(self) -> dict[Siblings, list[Sequence]]:
        """Return the decodes of each request with several beams, the oldest first."""
        beams: dict[Siblings, list[Sequence]] = {}
        for seq in self.decodes:
            if seq.siblings is not None:
                beams.setdefault(seq.siblings, []).append(seq)
        return beams

    def _replace_worst(self, siblings: Siblings, beams: list[Sequence]) -> None:
        best = siblings.first if siblings.first in beams else beams[0]
        worst = next(beam for beam in beams if beam is not best)
        self.decodes.leave(worst)
        self.memory.release(worst)
        child = best.fork(1, worst.arrival_number)
        child.base_generated_tokens = best.generated_tokens
        share(self, best, child)

    def has_slot(self) -> bool:
        """Return whether every beam of the next in line finds a slot."""
        head = self.queue.head()
        wanted = _slots(head) if head is not None else 1
        taken = self.decodes.size + sum(_slots(seq) for seq in self.prompts)
        return taken + wanted <= self.config.max_seqs


def _slots(seq: Sequence) -> int:
    """Return the slots of a sequence: of all its beams before they have begun."""
    return seq.samples if seq.siblings is None else 1
