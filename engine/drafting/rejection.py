"""Rejection of drafted tokens such that what comes out has the distribution of the target.

A proposal x, drawn from q, is accepted with probability min(1, p(x) / q(x)); after a rejection the
target still wants what q lacks, (p - q)+ normalised (Leviathan et al., ICML 2023; Chen et al.,
2023). Of several proposals, drawn from q one after the other without replacement, each is judged
against what the target still wants and what q still had (recursive rejection: Jeon et al., 2024;
Yang et al., 2024). Where nothing is proposed, or the last proposal is rejected, the next token is
drawn from what is still wanted.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from servetwin.engine.drafting.draft_tree import DraftTree


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
