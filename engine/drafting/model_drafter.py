"""Drafts of a model: a small one beside the target, or the first layers of the target itself."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from servetwin.engine.attention.step_attention import AttentionBackend
from servetwin.engine.core.runner import forward
from servetwin.engine.core.step_input import Share, StepInput
from servetwin.engine.drafting.drafts import Drafts
from servetwin.engine.drafting.proposals import NOTHING, Pass, Proposals, all_greedy, propose
from servetwin.engine.kv.kv_store import KVStore
from servetwin.engine.models.model import Decoder
from servetwin.policies.batch import ScheduledSequence

_TOKEN_BYTES = 4


class NGramDrafter:
    """Proposes the ``drafts`` tokens that followed the longest match, of at most ``longest``."""

    store: KVStore | None = None

    def __init__(self, drafts: int, longest: int, vocab_size: int, device: torch.device) -> None:
        self._drafts = drafts
        self._longest = longest
        self._vocab_size = vocab_size
        self._device = device

    def draft(self, passes: list[Pass], prompts: list[Share]) -> Proposals:
        """Look up each pass; prompts need nothing."""
        del prompts
        tokens = [continuation(one.state.token_ids, self._drafts, self._longest) for one in passes]
        if all_greedy(passes):
            return Proposals(tokens, None)
        proposed = torch.tensor(tokens, device=self._device)
        chances = torch.zeros(*proposed.shape, self._vocab_size, device=self._device)
        made = (proposed != NOTHING).to(chances.dtype)
        chances.scatter_(2, proposed.clamp(min=0)[..., None], made[..., None])
        return Proposals(tokens, chances)


def continuation(token_ids: list[int], drafts: int, longest: int) -> list[int]:
    """Return what followed the last tokens where they stood before, latest place first."""
    known = np.array(token_ids, dtype=np.int32).tobytes()
    for length in range(min(longest, len(token_ids) - 1), 0, -1):
        place = _last_before(known, length)
        if place is not None:
            tokens = token_ids[place + length : place + length + drafts]
            return tokens + [NOTHING] * (drafts - len(tokens))
    return [NOTHING] * drafts


def _last_before(known: bytes, length: int) -> int | None:
    """Return the last place but the end of the ``length`` tokens at the end."""
    pattern, end = known[-length * _TOKEN_BYTES :], len(known) - 1
    while (at := known.rfind(pattern, 0, end)) >= 0:
        if at % _TOKEN_BYTES == 0:
            return at // _TOKEN_BYTES
        end = at + len(pattern) - 1
    return None


def share_logits(model: Decoder, attention: AttentionBackend, shares: list[Share]) -> Tensor:
    """Compute the shares; float32 logits of their sampled rows, in the order of the shares."""
    return forward(model, attention, StepInput.of_shares(shares))


class ModelDrafter:
    """Drafts level by level, each in one pass over the tokens of the level above.

    ``logits`` computes a pass. With a ``store`` of its own it computes prompts as the target does,
    and begins with the last two tokens of a sequence: where all drafts were accepted, the last one
    is new to it. The first layers of the target find there what the target has left.
    """

    def __init__(
        self,
        logits: Callable[[list[Share]], Tensor],
        drafts: Drafts,
        store: KVStore | None = None,
    ) -> None:
        self._logits = logits
        self._tree = drafts.tree
        self._drafts = drafts
        self._first_rows = 1 if store is None else 2
        self.store = store

    def draft(self, passes: list[Pass], prompts: list[Share]) -> Proposals:
        """Draft a tree for each pass."""
        drawing = _Drawing(passes, self._drafts)
        shares = [share for one in passes for share in self._first(one)]
        if self.store is not None:
            shares += [replace(share, sampled=range(0), prompt_logprobs=0) for share in prompts]
        if shares:
            logits = self._logits(shares)
        for level in range(len(self._tree.widths)):
            if not drawing.going_on:
                break
            if level:
                logits = self._logits(drawing.shares(level))
            drawing.draw(level, logits)
        return drawing.proposals()

    def _first(self, one: Pass) -> list[Share]:
        start, rows = one.root + 1 - self._first_rows, self._first_rows
        entry = ScheduledSequence(one.seq, start, rows, yields_token=True)
        ids = one.state.token_ids[start:]
        return Share(entry, ids, range(start, start + rows), range(rows - 1, rows)).single_rows()


class _Drawing:
    """The drafts of a step as they grow; a chain may end before the others do."""

    def __init__(self, passes: list[Pass], drafts: Drafts) -> None:
        self._passes = passes
        self._drafts = drafts
        self._tree = drafts.tree
        self._tokens = [[NOTHING] * self._tree.drafts for _ in passes]
        self._chances: list[Tensor] = []
        self._stops = bool(drafts.least_confidence) or drafts.most_entropy is not None
        self._greedy = all_greedy(passes) and not self._stops
        # Passes that are still drafted for.
        self.going_on = list(range(len(passes)))

    def draw(self, level: int, logits: Tensor) -> None:
        """Draw the tokens below each row of a level."""
        tree, width = self._tree, self._tree.widths[level]
        rows = range(tree.level_starts[level], tree.level_starts[level + 1])
        if self._greedy:
            picked = logits.topk(width).indices
        else:
            sampled = [
                self._passes[place].row(level, self._path(place, row))
                for place in self.going_on
                for row in rows
            ]
            picked, chances = propose(logits, sampled, rows, width)
            self._keep(chances, len(rows))
        first = rows.stop - 1
        by_pass = picked.view(len(self.going_on), -1)
        for place, tokens in zip(self.going_on, by_pass.tolist(), strict=True):
            self._tokens[place][first : first + len(tokens)] = tokens
        if self._stops:
            self._stop(chances, picked)

    def shares(self, level: int) -> list[Share]:
        """Return the tokens of a level as rows of the next pass."""
        start, stop = self._tree.level_starts[level : level + 2]
        shares = []
        for place in self.going_on:
            one = self._passes[place]
            root = one.root
            entry = ScheduledSequence(one.seq, root + start, stop - start, yields_token=True)
            ids = self._tokens[place][start - 1 : stop - 1]
            shares.append(Share(entry, ids, [root + level] * len(ids), range(len(ids))))
        return shares

    def proposals(self) -> Proposals:
        """Return all that was drawn."""
        if not self._chances:
            return Proposals(self._tokens, None)
        chances = torch.cat(self._chances, dim=1)
        missing = self._tree.inner_rows - chances.shape[1]
        if missing:
            chances = torch.nn.functional.pad(chances, (0, 0, 0, missing))
        return Proposals(self._tokens, chances)

    def _keep(self, chances: Tensor, rows: int) -> None:
        by_pass = chances.view(len(self.going_on), rows, -1)
        if len(self.going_on) < len(self._passes):
            every = by_pass.new_zeros(len(self._passes), rows, by_pass.shape[2])
            every[self.going_on] = by_pass
            by_pass = every
        self._chances.append(by_pass)

    def _path(self, place: int, row: int) -> list[int]:
        return [self._tokens[place][at - 1] for at in self._tree.paths[row][1:]]

    def _stop(self, chances: Tensor, picked: Tensor) -> None:
        """End the chains behind a token that the drafter is not sure enough of."""
        sure = chances.gather(1, picked)[:, 0] >= self._drafts.least_confidence
        if self._drafts.most_entropy is not None:
            sure &= torch.special.entr(chances).sum(1) <= self._drafts.most_entropy
        self.going_on = [
            place for place, goes_on in zip(self.going_on, sure.tolist(), strict=True) if goes_on
        ]
