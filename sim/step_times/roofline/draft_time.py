"""The time that drafting adds to the steps of a target."""

from collections.abc import Callable
from collections.abc import Sequence as Listed
from functools import partial

import numpy as np

from servetwin.policies.batch import BatchShape
from servetwin.policies.drafted_decodes import DraftedDecodes
from servetwin.sim.step_times.roofline.deployment import Drafting
from servetwin.sim.step_times.roofline.operators import IntArray
from servetwin.sim.step_times.step_time import AffineStepTime, Remembered

_HERE = np.zeros(1, np.int64)


class ByStart:
    """A function of the first positions of chunks, not below 0, that remembers its values."""

    def __init__(self, function: Callable[[int], int]) -> None:
        self._function = function
        self._known: IntArray = np.full(1024, -1, np.int64)

    def __call__(self, base: int, offsets: IntArray) -> IntArray:
        """Return the values at ``base`` + ``offsets``; the last offset is the largest."""
        if not len(offsets):
            return offsets
        if base + offsets[-1] >= len(self._known):
            more = np.full(base + int(offsets[-1]) + 1, -1, np.int64)
            self._known = np.concatenate((self._known, more))
        known = self._known[base:]
        values: IntArray = known[offsets]
        if values[values.argmin()] < 0:
            for offset in set(offsets[values < 0].tolist()):
                known[offset] = self._function(base + offset)
            values = known[offsets]
        return values

    def at(self, start: int) -> int:
        """Return the value at one of them."""
        return int(self(start, _HERE)[0])


Chunks = tuple[tuple[int, int], ...]
"""(first position, rows) of each."""


class DraftTime:
    """The time of a drafter; ``model`` has the step times of the model that drafts.

    ``expected_units`` are those of a step by its decodes on average, without their contexts.
    """

    def __init__(
        self, drafting: Drafting, model: AffineStepTime, expected_units: Callable[[float], int]
    ) -> None:
        self._drafting = drafting
        self.shares: tuple[float, ...] = drafting.step_shares or (1,) * len(drafting.step_rows)
        """Probability of each step that a sequence still drafts in it."""
        self._model, self._expected_units = model, expected_units
        self._drafted = Remembered(self._of_drafted)
        self._readings = Remembered(self._of_prompts)
        places = range(1, len(self.shares) + 1)
        self._seen_at = [partial(self._seen_by_one, place) for place in places]

    @property
    def is_line(self) -> bool:
        """Return whether a pass is longer by as many units for each token of context."""
        drafting = self._drafting
        certain = all(share == 1 for share in self.shares)
        return drafting.placement == "device" and drafting.context_tokens is None and certain

    def beside(
        self, units: list[int], slack: int, prompts: Chunks, drafted: int, seen: Listed[float]
    ) -> list[int]:
        """Return the units of passes whose target takes ``units``: the sums, or the longer parts.

        The target waits ``slack`` of them for its weights; drafting that needs no stream of its own
        hides there. The drafter sees as many tokens in each pass as ``seen`` says.
        """
        reading = self._reading_units(prompts)
        apart, per_token = self._drafted[drafted] if drafted else (0, 0)
        drafting = [round(apart + per_token * tokens) for tokens in seen]
        if self._drafting.is_part or not self._drafting.resident:
            slack = 0
        pairs = zip(units, drafting, strict=True)
        match self._drafting.placement:
            case "device":
                return [target + max(0, reading + draft - slack) for target, draft in pairs]
            case "other":
                return [max(target, reading) + max(0, draft - slack) for target, draft in pairs]
            case _:
                return [max(target, reading + draft) for target, draft in pairs]

    def seen(self, group: DraftedDecodes, steps: int) -> list[float]:
        """Return the tokens that all drafting steps of each of the next passes attend to.

        Where nothing limits what drafting reads, the tokens that it drafts itself are left out.
        """
        if self._drafting.context_tokens is None:
            drafts = sum(self.shares)
            return [drafts * context for context in group.context_sums(steps)]
        places = [group.sums(tokens_at, steps) for tokens_at in self._seen_at]
        return [self._expected(tokens) for tokens in zip(*places, strict=True)]

    def seen_from(self, starts: IntArray) -> float:
        """Return ``seen`` of one pass of decodes, by their first positions."""
        if self._drafting.context_tokens is None:
            return sum(self.shares) * int(starts.sum())
        return self._expected([int(tokens_at(0, starts).sum()) for tokens_at in self._seen_at])

    def _seen_by_one(self, place: int, base: int, offsets: IntArray) -> IntArray:
        """Return the tokens that drafting step ``place`` attends to, at most the limit."""
        limit = self._drafting.context_tokens
        assert limit is not None
        return np.minimum(offsets + (base + place), limit)

    def _expected(self, tokens: Listed[int]) -> float:
        """Return the expected tokens of all drafting steps, by those of each if it is run."""
        return sum(share * count for share, count in zip(self.shares, tokens, strict=True))

    def _reading_units(self, prompts: Chunks) -> int:
        """Return the units in which a draft model of its own computes the prompts too."""
        if self._drafting.is_part or not prompts:
            return 0
        return self._readings[prompts] if len(prompts) == 1 else self._of_prompts(prompts)

    def _of_prompts(self, prompts: Chunks) -> int:
        return self._model.affine(BatchShape(0, 0, 0, prompts))[0]

    def _of_drafted(self, drafted: int) -> tuple[int, int]:
        """Return the units of drafting for ``drafted`` decodes: fixed, and per token seen.

        Where nothing limits what drafting reads, its own drafts are in the fixed part.
        """
        per_token, steps = self._model.decodes[drafted][1], self._drafting.step_rows
        pairs = zip(steps, self.shares, strict=True)
        units = sum(self._step_units(drafted * rows, share) for rows, share in pairs)
        if self._drafting.context_tokens is None:
            drafted_before = sum(share * place for place, share in enumerate(self.shares, start=1))
            units += round(per_token * drafted * drafted_before)
        return units, per_token

    def _step_units(self, rows: int, share: float) -> int:
        """Return the expected units of a step in which each of ``rows`` takes part with ``share``.

        It is run where any does.
        """
        if share == 1:
            return self._model.decodes[rows][0]
        runs = 1 - (1 - share) ** rows
        return round(runs * self._expected_units(rows * share / runs)) if runs else 0
