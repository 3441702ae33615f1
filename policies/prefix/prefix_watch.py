"""Prompts whose matches in a prefix tree are watched, so that none is sought anew in vain.

A match can lengthen only where a run begins with the key that would continue it. It can shorten
only where its last run loses blocks, since only leaves are evicted. Nothing else is a cause.
"""

from servetwin.policies.prefix.prefix_run import PrefixRun
from servetwin.policies.sequence import Sequence

Cause = int | PrefixRun
"""A key with which a run begins, or a run that loses blocks."""


class PrefixWatch:
    """Knows which of the watched prompts may have another match than before."""

    def __init__(self) -> None:
        self._watching: dict[Cause, set[Sequence]] = {}
        self._causes: dict[Sequence, list[Cause]] = {}
        self._changed: set[Sequence] = set()

    def begin(self, seq: Sequence, causes: list[Cause]) -> None:
        """Watch a prompt that was just matched."""
        self._causes[seq] = causes
        for cause in causes:
            self._watching.setdefault(cause, set()).add(seq)

    def end(self, seq: Sequence) -> None:
        """Stop watching a prompt."""
        self._changed.discard(seq)
        for cause in self._causes.pop(seq):
            watching = self._watching.get(cause)
            if watching is not None:
                watching.discard(seq)
                if not watching:
                    del self._watching[cause]

    def happened(self, cause: Cause) -> None:
        """Note that a run began with a key, or lost blocks."""
        watching = self._watching.pop(cause, None)
        if watching is not None:
            self._changed |= watching

    def take_changed(self) -> list[Sequence]:
        """Return the prompts to match again, and stop watching them."""
        changed = list(self._changed)
        for seq in changed:
            self.end(seq)
        return changed
