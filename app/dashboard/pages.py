"""The pages by the last part of their address, in their order along the top.

Pages that answer questions come first; what sends requests or manages files comes last.
"""

from collections.abc import Callable
from importlib import import_module

FIRST = "what-if"
"""The page without a name in its address."""
PAGES = {
    FIRST: "What if",
    "compare": "Compare",
    "how-many": "How many",
    "policies": "Policies",
    "timeline": "Timeline",
    "trust": "Trust",
    "load-test": "Load test",
    "runs": "Runs",
}


def drawing(name: str) -> Callable[[], None]:
    """Return the function that draws the page of that name."""
    module = import_module(f"servetwin.app.dashboard.{name.replace('-', '_')}.page")
    page: Callable[[], None] = module.page
    return page
