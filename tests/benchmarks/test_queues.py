"""A request costs the same work in a long queue as in a short one, and for a long prompt."""

import pytest

from tests.benchmarks.queues import ROWS
from tests.support.counted_lines import lines_run

SMALL, FACTOR = 150, 6
MOST_GROWTH = 1.5


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_the_work_for_a_request_does_not_grow(name: str) -> None:
    """Lines of Python are counted, at a size and at six times that size."""
    make, _ = ROWS[name]
    make(1).run()  # what is imported and loaded once
    lines = []
    for size in (SMALL, FACTOR * SMALL):
        case = make(size)
        lines.append(lines_run(case.run) / len(case.trace))
    assert lines[1] < MOST_GROWTH * lines[0]
