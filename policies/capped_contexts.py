"""Sums of contexts of which a layer with a window sees the last so many tokens."""

from bisect import bisect_right, insort

# More steps than any run has.
ALWAYS = 1 << 62


class CappedContexts:
    """The sum of min(context, ``limit``) over the members of a ``Lockstep``, own positions too.

    A member sees one more token each step until it sees ``limit`` of them. Its distance from there
    is a difference of steps, so a step changes nothing here.

    ``_full_steps`` are the steps from which members see ``limit`` tokens, sorted; steps up to
    ``_settled_step`` are left out.
    """

    __slots__ = ("_full_steps", "_limit", "_settled_step", "_sum")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._settled_step = 0
        self._full_steps: list[int] = []
        self._sum = 0

    def join(self, step: int, context: int) -> None:
        """Add a member whose context is so long at ``step``, its own position included."""
        self._settle(step)
        full_step = step + self._limit - context
        if full_step > step:
            insort(self._full_steps, full_step)
            self._sum += full_step

    def leave(self, step: int, context: int) -> None:
        """Take out a member whose context is so long at ``step``."""
        full_step = step + self._limit - context
        if full_step > self._settled_step:
            place = bisect_right(self._full_steps, full_step) - 1
            del self._full_steps[place]
            self._sum -= full_step

    def line(self, step: int, size: int, after: int = 0) -> tuple[int, int, int]:
        """Return (tokens seen, growth per step, steps that grow so) ``after`` steps from ``step``.

        ``size`` is the number of members.
        """
        self._settle(step)
        full_steps, missing = self._full_steps, self._sum
        then = step + after
        place = bisect_right(full_steps, then) if after else 0
        if place:
            missing -= sum(full_steps[:place])
        growing = len(full_steps) - place
        seen = self._limit * size - missing + growing * then
        return seen, growing, full_steps[place] - then + 1 if growing else ALWAYS

    def _settle(self, step: int) -> None:
        """Leave out the members that see ``limit`` tokens by ``step``."""
        full_steps = self._full_steps
        if full_steps and full_steps[0] <= step:
            place = bisect_right(full_steps, step)
            self._sum -= sum(full_steps[:place])
            del full_steps[:place]
        self._settled_step = step
