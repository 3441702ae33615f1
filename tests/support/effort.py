"""How much work the tests do: all of it in CI, a share of it in the inner loop."""

import os
from math import sqrt

FULL = bool(os.environ.get("CI"))
REDUCTION = 1 if FULL else 4
"""Tests that simulate at random simulate one request in so many of the full number."""
WIDENING = sqrt(REDUCTION)
"""How much wider than with the full number an interval may be."""
