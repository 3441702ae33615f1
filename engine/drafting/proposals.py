"""Drafted tokens, and the chances that the drafter gave each token of the vocabulary."""

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from servetwin.engine.core.step_input import Share
from servetwin.engine.drafting.draft_tree import DraftTree
from servetwin.engine.kv.kv_store import KVStore
from servetwin.engine.models.device import to_device
from servetwin.engine.sampling.noise import exponentials, row_bits, uniforms
from servetwin.engine.sampling.sampler import probabilities
from servetwin.engine.sampling.token_state import SampledRow, TokenState
from servetwin.policies.sequence import Sequence


class Walk(NamedTuple):
    """The way of each sequence down its tree."""

    rows: Tensor
    """Row of the tree that is reached, [sequences]: all on the path to it are accepted."""
    wanted: Tensor
    """Weights [sequences, vocabulary] that the token after that row is drawn in proportion to."""


def walk(
    tree: DraftTree, tokens: Tensor, drafter: Tensor, target: Tensor, uniforms: Tensor
) -> Walk:
    """Accept drafted ``tokens`` [sequences, drafts] from the root on.

    ``drafter`` [sequences, inner rows, vocabulary] and ``target`` [sequences, rows, vocabulary] are
    the distributions after each row; ``uniforms`` [sequences, drafts] decide, each below 1. A token
    to which the drafter gives no chance is none.
    """
    every = torch.arange(len(tokens), device=tokens.device)
    rows = torch.zeros_like(every)
    wanted = target[:, 0].clone()
    walking = every
    for level, width in enumerate(tree.widths):
        proposed = drafter[walking, rows[walking]]
        start, above = tree.level_starts[level + 1], tree.level_starts[level]
        first_child = start + (rows[walking] - above) * width
        left = torch.arange(len(walking), device=tokens.device)  # places in ``walking``
        accepted = [left[:0]]
        for sibling in range(width):
            who = walking[left]
            child = first_child[left] + sibling
            token = tokens[who, child - 1]
            chance, worth = proposed[left, token], wanted[who, token]
            accepts = _accepts(uniforms[who, child - 1], chance, worth) & (chance > 0)
            rows[who[accepts]] = child[accepts]
            accepted.append(left[accepts])
            refused = ~accepts & (chance > 0)
            _reject(wanted, who[refused], proposed, left[refused], token[refused])
            left = left[~accepts]
        walking = walking[torch.cat(accepted)]
        wanted[walking] = target[walking, rows[walking]]
    return Walk(rows, wanted)


def _accepts(uniform: Tensor, proposed: Tensor, wanted: Tensor) -> Tensor:
    """Return whether each is accepted: with probability min(1, wanted / proposed)."""
    return uniform * proposed < wanted


def _reject(wanted: Tensor, who: Tensor, proposed: Tensor, places: Tensor, tokens: Tensor) -> None:
    """Take what was proposed in vain from what is wanted, and the token from what is proposed."""
    rest = (wanted[who] - proposed[places]).clamp_(min=0)
    mass = rest.sum(-1, keepdim=True)
    wanted[who] = torch.where(mass > 0, rest / mass, wanted[who])  # equal but for rounding
    proposed[places, tokens] = 0
    others = proposed[places]
    proposed[places] = others / others.sum(-1, keepdim=True).clamp_(min=1e-30)


def greedy_walk(tree: DraftTree, tokens: list[int], wanted: list[int]) -> int:
    """Return the row that one sequence reaches where each row wants a single token."""
    row = 0
    for width in tree.widths:
        first = tree.first_child(row)
        right = (at for at in range(first, first + width) if tokens[at - 1] == wanted[row])
        child = next(right, None)
        if child is None:
            break
        row = child
    return row


# In the place of a token that was not drafted.
NOTHING = -1


@dataclass(frozen=True, slots=True)
class Pass:
    """A decode whose pass verifies drafts."""

    seq: Sequence
    state: TokenState

    @property
    def root(self) -> int:
        """Position of the last token that is known."""
        return len(self.state.token_ids) - 1

    def row(self, depth: int, drafted: list[int]) -> SampledRow:
        """Return how the token after the ``drafted`` ones is chosen."""
        row = self.state.row(self.root + 1 - self.seq.prompt_tokens + depth)
        return replace(row, drafted=tuple(drafted)) if row.seen else row


class Proposals(NamedTuple):
    """What is drafted for each of several passes."""

    tokens: list[list[int]]
    """By row of the tree, without the root."""
    chances: Tensor | None
    """[passes, inner rows, vocabulary], zeros where nothing is drafted; None: all are greedy."""

    def drafted(self, place: int) -> int:
        """Return the number of tokens drafted for one pass."""
        return sum(token != NOTHING for token in self.tokens[place])


class Drafter(Protocol):
    """Proposes tokens."""

    store: KVStore | None
    """Keys and values of its own model, where it has one."""

    def draft(self, passes: list[Pass], prompts: list[Share]) -> Proposals:
        """Draft for each pass; ``prompts`` are what else the step computes."""


def all_greedy(passes: list[Pass]) -> bool:
    """Return whether every token of the passes is that of the largest logit as it is."""
    return all(one.state.params.is_argmax for one in passes)


def propose(
    logits: Tensor, rows: list[SampledRow], tree_rows: range, width: int
) -> tuple[Tensor, Tensor]:
    """Return ``width`` tokens below each row of a level [rows, width], and the chances of all.

    They are drawn one after the other without replacement, as the first of a race; a greedy
    sequence proposes its likeliest tokens. The rows of a sequence, ``tree_rows``, stand together.
    """
    chances = probabilities(logits, [_unrounded(row) for row in rows])
    each = rows[:: len(tree_rows)]
    seeds, positions = [row.seed for row in each], [row.generated_tokens for row in each]
    bits = np.stack([row_bits(seeds, positions, 1 + row) for row in tree_rows], axis=1)
    race = chances / exponentials(bits.ravel(), chances.shape[1], chances.device)
    greedy = [place for place, row in enumerate(rows) if row.params.temperature == 0]
    if greedy:
        index = to_device(greedy, chances.device)
        race.index_copy_(0, index, -chances.index_select(0, index))
    return race.topk(width, largest=False).indices, chances


def decisions(passes: list[Pass], tree: DraftTree) -> Tensor:
    """Return the random numbers [passes, drafts] that accept or reject."""
    seeds = [one.state.seed for one in passes]
    numbers = []
    for row in range(1, tree.rows):
        positions = [one.row(tree.depths[row] - 1, []).generated_tokens for one in passes]
        numbers.append(uniforms(row_bits(seeds, positions, tree.rows + row)))
    return torch.from_numpy(np.stack(numbers, axis=1))


def _unrounded(row: SampledRow) -> SampledRow:
    """Return a greedy row as one that draws: its chances say how sure the drafter is."""
    params = row.params
    if params.temperature:
        return row
    params = replace(params, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
    return replace(row, params=params)
