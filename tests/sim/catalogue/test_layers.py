"""The bounds of what a mixer keeps."""

from typing import Any

import pytest

from tests.support.small_models import attention


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, None),
        ({"window_tokens": 10}, 10),
        ({"window_tokens": 10, "sink_tokens": 4}, 14),
        ({"budget_tokens": 6}, 6),
        ({"budget_tokens": 6, "window_tokens": 3, "sink_tokens": 1}, 4),
        ({"budget_tokens": 3, "window_tokens": 30}, 3),
        ({"dilation": 4}, None),
    ],
)
def test_the_tightest_bound_says_what_stays(changes: dict[str, Any], expected: int | None) -> None:
    assert attention(**changes).resident_limit() == expected
