"""How much work the tests do: all of it in CI, a share of it in the inner loop."""

import os

FULL = bool(os.environ.get("CI"))
"""Whether tests that simulate at random simulate the full number of requests."""
