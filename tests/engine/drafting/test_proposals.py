"""Rejected and accepted drafts together have exactly the distribution of the target.

The two models are tables here: a distribution over sixteen tokens after each context of up to four.
"""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

from servetwin.engine.drafting import proposals as rejection
from servetwin.engine.drafting.draft_tree import DraftTree
from servetwin.engine.drafting.proposals import Walk, greedy_walk, walk

VOCABULARY, DRAWS = 16, 20_000
LEAST_P_VALUE = 1e-3
"""Of a right rule, one test in a thousand would be below; the seeds are fixed."""


class Table:
    """A model: its distribution depends on the last two tokens."""

    def __init__(self, seed: int, sharpness: float = 1.5, top: int = VOCABULARY) -> None:
        generator = torch.Generator().manual_seed(seed)
        shape = (VOCABULARY, VOCABULARY, VOCABULARY)
        logits = torch.randn(shape, generator=generator) * sharpness
        lowest = logits.topk(top, -1).values[..., -1:]
        self.chances = logits.masked_fill(logits < lowest, -torch.inf).softmax(-1)

    def after(self, before: Tensor, last: Tensor) -> Tensor:
        return self.chances[before, last]


def draft(tree: DraftTree, drafter: Table, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens [count, rows] with the root's 0, the drafter's chances, and each row's parent."""
    tokens = torch.zeros(count, tree.rows, dtype=torch.long)
    parents = torch.tensor([0, *(tree.parent(row) for row in range(1, tree.rows))])
    chances = torch.zeros(count, tree.inner_rows, VOCABULARY)
    for row in range(tree.inner_rows):
        chances[:, row] = drafter.after(tokens[:, parents[row]], tokens[:, row])
        width, first = tree.widths[tree.depths[row]], tree.first_child(row)
        race = chances[:, row] / torch.empty_like(chances[:, row]).exponential_()
        tokens[:, first : first + width] = race.topk(width).indices
    return tokens, chances, parents


def judged(tree: DraftTree, drafter: Table, target: Table, count: int) -> tuple[Tensor, Walk]:
    tokens, chances, parents = draft(tree, drafter, count)
    befores = [tokens[:, parents[row]] for row in range(tree.rows)]
    wanted = [target.after(before, tokens[:, row]) for row, before in enumerate(befores)]
    uniforms = torch.rand(count, tree.drafts)
    return tokens, walk(tree, tokens[:, 1:], chances, torch.stack(wanted, 1), uniforms)


def first_two(tree: DraftTree, drafter: Table, target: Table) -> Tensor:
    """The first two tokens of many answers; the second may be of the second pass."""
    tokens, (rows, left) = judged(tree, drafter, target, DRAWS)
    last = left.multinomial(1)[:, 0]
    path = torch.zeros(DRAWS, 2, dtype=torch.long)
    for place, row in enumerate(rows.tolist()):
        said = [*(int(tokens[place, at]) for at in tree.paths[row][1:]), int(last[place])][:2]
        path[place, : len(said)] = torch.tensor(said)
        if len(said) == 1:
            after = target.after(torch.tensor(0), torch.tensor(said[0]))
            path[place, 1] = int(after.multinomial(1))
    return path


def p_value(pairs: Tensor, target: Table) -> float:
    """Chi-square of pairs against their exact probabilities; rare ones are taken together."""
    first = target.chances[0, 0]
    exact = (first[:, None] * target.chances[0]).flatten().double().numpy()
    seen = np.bincount((pairs[:, 0] * VOCABULARY + pairs[:, 1]).numpy(), minlength=len(exact))
    order = np.argsort(exact)
    rare = order[: max(1, int(np.searchsorted(np.cumsum(exact[order]) * len(pairs), 10)) + 1)]
    kept = np.setdiff1d(order, rare)
    expected = np.append(exact[kept], exact[rare].sum()) * len(pairs)
    expected *= len(pairs) / expected.sum()
    return float(chisquare(np.append(seen[kept], seen[rare].sum()), expected).pvalue)


CASES = {
    "draft = target": ((1, 1, 1), 1, VOCABULARY),
    "draft != target": ((1, 1, 1), 2, VOCABULARY),
    "narrow draft": ((1, 1), 2, 3),
    "tree": ((3, 2, 1), 2, VOCABULARY),
    "tree of the target": ((3, 2), 1, VOCABULARY),
    "fewer tokens than proposals": ((4, 2), 2, 2),
}


@pytest.mark.parametrize("name", CASES)
def test_the_first_two_tokens_are_distributed_as_the_targets(name: str) -> None:
    widths, seed, top = CASES[name]
    torch.manual_seed(3)
    pairs = first_two(DraftTree(widths), Table(seed, top=top), Table(1))
    assert p_value(pairs, Table(1)) > LEAST_P_VALUE


def keeps_what_was_wanted(wanted: Tensor, *_: Tensor) -> None:
    """A wrong rule: after a rejection the target draws from all that it wanted."""


def keeps_the_proposal(
    wanted: Tensor, who: Tensor, proposed: Tensor, places: Tensor, tokens: Tensor
) -> None:
    """A wrong rule: siblings are judged as if they had been drawn with replacement."""
    rest = (wanted[who] - proposed[places]).clamp_(min=0)
    wanted[who] = rest / rest.sum(-1, keepdim=True)


WRONG: dict[str, tuple[str, str, Callable[..., object]]] = {
    "no residual": ("draft != target", "_reject", keeps_what_was_wanted),
    "no residual in a tree": ("tree", "_reject", keeps_what_was_wanted),
    "with replacement": ("tree", "_reject", keeps_the_proposal),
    "too generous": ("draft != target", "_accepts", lambda u, q, p: u * u * q < p),
    "too strict": ("draft != target", "_accepts", lambda u, q, p: u * q < 0.8 * p),
    "the other way round": ("draft != target", "_accepts", lambda u, q, p: u * p < q),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_rule_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case, function, wrong = WRONG[name]
    monkeypatch.setattr(rejection, function, wrong)
    widths, seed, top = CASES[case]
    torch.manual_seed(3)
    pairs = first_two(DraftTree(widths), Table(seed, top=top), Table(1))
    assert p_value(pairs, Table(1)) < LEAST_P_VALUE**2


def test_a_draft_of_the_target_is_always_accepted() -> None:
    torch.manual_seed(4)
    _, found = judged(DraftTree((1, 1, 1)), Table(1), Table(1), 2000)
    assert (found.rows == 3).all()


def test_drafts_are_accepted_as_often_as_the_distributions_overlap() -> None:
    torch.manual_seed(5)
    drafter, target = Table(2), Table(1)
    accepted = float(judged(DraftTree((1,)), drafter, target, DRAWS)[1].rows.float().mean())
    overlap = float(torch.minimum(drafter.chances[0, 0], target.chances[0, 0]).sum())
    assert 0.2 < overlap < 0.8
    assert abs(accepted - overlap) < 3.3 * (overlap * (1 - overlap) / DRAWS) ** 0.5


def test_what_the_drafter_gives_no_chance_is_no_proposal() -> None:
    """The second level has none: whatever its row wants comes out, and nothing was rejected."""
    tree = DraftTree((1, 1))
    chances, wanted = torch.zeros(2, 2, 4), torch.full((2, 3, 4), 0.25)
    chances[:, 0, 1] = 1.0
    wanted[0, 0] = torch.tensor([0.0, 1.0, 0.0, 0.0])
    rows, left = walk(
        tree, torch.tensor([[1, 2], [1, 2]]), chances, wanted, torch.full((2, 2), 0.5)
    )
    assert rows.tolist() == [1, 0]
    assert left[0].tolist() == [0.25] * 4
    assert left[1] == pytest.approx(torch.tensor([1 / 3, 0, 1 / 3, 1 / 3]))


def test_a_greedy_sequence_goes_where_its_rows_want_the_proposals() -> None:
    tree = DraftTree((2, 2))
    tokens = [5, 6, 7, 8, 9, 10]
    assert greedy_walk(tree, tokens, [6, 0, 10, 0, 0, 0, 0]) == 6
    assert greedy_walk(tree, tokens, [5, 9, 0, 0, 0, 0, 0]) == 1
    assert greedy_walk(tree, tokens, [7, 9, 0, 0, 0, 0, 0]) == 0
    assert greedy_walk(DraftTree((1, 1)), [5, -1], [5, 6, 7]) == 1
