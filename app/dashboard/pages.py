"""The pages by the last part of their address, in their order along the top: a question each.

Pages that answer questions come first; what sends requests or manages files comes last.
"""

from collections.abc import Callable
from importlib import import_module

from servetwin.app.dashboard.charts import titled_page
from servetwin.app.dashboard.formatting import page_text
from servetwin.app.words import asset_table

# The page without a name in its address.
FIRST = "plan"
PAGES: dict[str, str] = asset_table("pages.yaml")["titles"]


def drawing(name: str) -> Callable[[], None]:
    """Return the function that draws the page of that name, below its question."""
    draw: Callable[[], None] = import_module(f"servetwin.app.dashboard.{name}.page").page

    def page() -> None:
        with titled_page(PAGES[name], page_text(name)):
            draw()

    return page
