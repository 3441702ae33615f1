"""How much work the tests do: all of it in CI, a share of it in the inner loop."""

import os
from math import sqrt

import pytest
from hypothesis import settings

FULL = bool(os.environ.get("CI"))
REDUCTION = 1 if FULL else 4
"""Tests that simulate at random simulate one request in so many of the full number."""
WIDENING = sqrt(REDUCTION)
"""How much wider than with the full number an interval may be."""

only_in_ci = pytest.mark.skipif(not FULL, reason="CI=1 runs it; a smaller one like it runs always")


def examples(full: int) -> int:
    """How many examples a test draws that has a number of its own: at most those of the profile."""
    return min(full, settings().max_examples)
