"""What an executor must copy for a tier of prefixes in host memory, since it last asked."""

from typing import NamedTuple, TypeAlias

from servetwin.policies.sequence import Sequence

Part: TypeAlias = tuple[int, int]
"""(key, first block in the prompt) of the blocks that one key names."""


class KeptPart(NamedTuple):
    """A part that the host is to hold: where its sequence has it on the device."""

    seq: Sequence
    blocks: list[int]
    """The sequence's block table, which stays as it is when the sequence gives it back."""


class HostMoves:
    """Which parts were kept, loaded and dropped in the decision of a step, in the order of copying.

    ``computed`` parts are on the device before the step. What is loaded from the host is there
    until then, and may be dropped by the same decision. ``coming`` parts the step computes.
    """

    __slots__ = ("coming", "computed", "dropped", "loads")

    def __init__(self) -> None:
        self.computed: dict[Part, KeptPart] = {}
        self.loads: dict[Sequence, tuple[int, int]] = {}
        """First block and end, in the block table of each sequence that is loaded."""
        self.dropped: dict[Part, None] = {}
        self.coming: dict[Part, KeptPart] = {}

    def keep(self, part: Part, seq: Sequence, is_computed: bool) -> None:
        """Note a part that the host is to hold."""
        kept = KeptPart(seq, seq.blocks)
        if is_computed:
            self.computed[part] = kept
            self.dropped.pop(part, None)
        else:
            self.coming[part] = kept

    def load(self, seq: Sequence, start: int, end: int) -> None:
        """Note that blocks ``start`` to ``end`` - 1 of a sequence come from the host."""
        self.loads[seq] = (start, end)

    def drop(self, part: Part) -> None:
        """Note a part that the host holds no longer."""
        self.coming.pop(part, None)
        self.dropped[part] = None
