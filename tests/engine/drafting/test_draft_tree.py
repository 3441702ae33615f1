"""The rows of a static tree, against the tree built node by node."""

import pytest

from servetwin.engine.drafting.draft_tree import DraftTree
from servetwin.sim.step_times.acceptance import Tree


@pytest.mark.parametrize("widths", [(1,), (1, 1, 1, 1), (3, 2, 1, 1), (2, 3), (1, 4, 2)])
def test_rows_follow_level_by_level_with_siblings_beside_each_other(
    widths: tuple[int, ...],
) -> None:
    paths: list[tuple[int, ...]] = [()]
    level = paths
    for width in widths:
        level = [(*path, sibling) for path in level for sibling in range(width)]
        paths = paths + level
    tree = DraftTree(widths)
    assert tree.rows == len(paths) == Tree(0.5, widths).rows
    assert tree.drafts == Tree(0.5, widths).nodes
    assert list(tree.depths) == [len(path) for path in paths]
    assert [paths[tree.parent(row)] for row in range(1, tree.rows)] == [p[:-1] for p in paths[1:]]
    assert tree.inner_rows == sum(len(path) < len(widths) for path in paths)
    for row in range(tree.inner_rows):
        assert paths[tree.first_child(row)] == (*paths[row], 0)
    for row, path in enumerate(paths):
        assert [paths[at] for at in tree.paths[row]] == [path[:n] for n in range(len(path) + 1)]
    assert tree.is_chain == (set(widths) == {1})
