"""Draw the diagrams: ``docs/diagrams/NAME.yml`` becomes ``docs/images/NAME.svg``.

``python docs/_site/diagram.py`` draws all of them anew. Places are written down, in pixels; an
arrow ends at the sides of boxes. A picture is light or dark as the page around it, or as the system
where it stands alone. On a page of the site it is part of the page, and its boxes are links.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Literal, get_args
from xml.sax.saxutils import escape, quoteattr

import yaml
from pydantic import BaseModel, ConfigDict

DOCS = Path(__file__).parents[1]
Kind = Literal["data", "policy", "simulated", "measured"]
Point = tuple[float, float]
Link = Callable[[str], str]
"""From the page of a box to its address."""

INKS = {
    "light": {
        "ink": "#1f2430", "line": "#5b6070", "page": "#ffffff", "area": "#f6f7f9",
        "data": "#e9ecf1", "policy": "#d6e8f5", "simulated": "#dcf0e4", "measured": "#fbe5d6",
    },
    "dark": {
        "ink": "#e6e8ee", "line": "#a0a6b5", "page": "#1e2129", "area": "#252933",
        "data": "#343a48", "policy": "#17405f", "simulated": "#1b4633", "measured": "#5a3214",
    },
}  # fmt: skip
"""The colours of both themes; text is set in ``ink`` on all others but ``line``."""
_LINE_PX = 17
_LETTER_PX = 6.6
_CORNER_PX = 6


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Area(_Part):
    """A frame behind boxes, with a caption."""

    at: tuple[float, float, float, float]
    text: str


class Box(_Part):
    """A box with its words, the first line in bold; ``page`` is where it leads."""

    at: tuple[float, float, float, float]
    text: list[str]
    kind: Kind = "data"
    page: str | None = None

    def side(self, name: str) -> Point:
        """Return the middle of a side; ``top+20`` is 20 to the right of that of the top."""
        side, sign, shift = name.partition("+") if "+" in name else name.partition("-")
        x, y, width, height = self.at
        along = float(sign + (shift or "0"))
        return {
            "left": (x, y + height / 2 + along),
            "right": (x + width, y + height / 2 + along),
            "top": (x + width / 2 + along, y),
            "bottom": (x + width / 2 + along, y + height),
        }[side]


class Arrow(_Part):
    """A line through points, each ``BOX.SIDE`` or a place; the heads are at ``heads``."""

    path: list[str | Point]
    text: str = ""
    text_at: Point | None = None
    heads: Literal["end", "both", "none"] = "end"
    dashed: bool = False


class Note(_Part):
    """Words alone, in the middle of a place."""

    at: Point
    text: str


class Diagram(_Part):
    """What a file of ``docs/diagrams`` has; ``about`` is for those that do not see the picture."""

    title: str
    about: str
    size: tuple[float, float]
    areas: list[Area] = []
    boxes: dict[str, Box]
    arrows: list[Arrow] = []
    notes: list[Note] = []


def read_diagram(name: str) -> Diagram:
    """Read a diagram by its name."""
    return Diagram.model_validate(yaml.safe_load((DOCS / f"diagrams/{name}.yml").read_text()))


def draw(name: str, link: Link | None = None) -> str:
    """Return a diagram as SVG, with links where ``link`` has the addresses of pages."""
    diagram = read_diagram(name)
    width, height = diagram.size
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="diagram" role="group" '
        f'aria-labelledby="{name}-title {name}-about" viewBox="0 0 {width:g} {height:g}">'
    )
    parts = [
        head,
        f'<title id="{name}-title">{escape(diagram.title)}</title>',
        f'<desc id="{name}-about">{escape(diagram.about.strip())}</desc>',
        f"<style>{_style()}</style>",
        _heads(name),
        *map(_area, diagram.areas),
        *(_arrow(arrow, diagram.boxes, name) for arrow in diagram.arrows),
        *(_box(box, link) for box in diagram.boxes.values()),
        *(_words(note.text, *note.at) for note in diagram.notes),
    ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _style() -> str:
    themes = {
        ".diagram": "light",
        "[data-md-color-scheme=default] .diagram": "light",
        "[data-md-color-scheme=slate] .diagram": "dark",
    }
    variables = {
        theme: ";".join(f"--d-{name}:{colour}" for name, colour in inks.items())
        for theme, inks in INKS.items()
    }
    rules = [f"{where}{{{variables[theme]}}}" for where, theme in themes.items()]
    alone = f"@media (prefers-color-scheme:dark){{.diagram{{{variables['dark']}}}}}"
    shapes = [
        ".diagram{font:13px system-ui,sans-serif}",
        ".diagram text{fill:var(--d-ink);text-anchor:middle;dominant-baseline:central}",
        ".diagram .name,.diagram .caption{font-weight:600}",
        ".diagram .caption{text-anchor:start}",
        ".diagram .halo{paint-order:stroke;stroke:var(--d-page);stroke-width:5px}",
        ".diagram path{fill:none;stroke:var(--d-line);stroke-width:1.5}",
        ".diagram .dashed{stroke-dasharray:5 4}",
        ".diagram marker path{fill:var(--d-line);stroke:none}",
        ".diagram rect{stroke:var(--d-line)}",
        ".diagram .area{fill:var(--d-area);stroke-dasharray:2 3}",
        *(f".diagram .{kind}{{fill:var(--d-{kind})}}" for kind in get_args(Kind)),
        ".diagram a:hover rect,.diagram a:focus rect{stroke:var(--d-ink);stroke-width:2.5}",
    ]
    return "".join([rules[0], alone, *rules[1:], *shapes])


def _heads(name: str) -> str:
    """Return the head of arrows, which turns with the line at either end."""
    return (
        f'<defs><marker id="{name}-head" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="8" '
        'markerHeight="8" orient="auto-start-reverse"><path d="M0 0L8 4L0 8z"/></marker></defs>'
    )


def _area(area: Area) -> str:
    x, y, _, _ = area.at
    return _rectangle(area.at, "area") + _words(area.text, x + 20, y + 18, "caption")


def _box(box: Box, link: Link | None) -> str:
    x, y, width, height = box.at
    if len(box.text) * _LINE_PX > height or max(map(len, box.text)) * _LETTER_PX > width:
        raise ValueError(f"the box at {x:g}, {y:g} is too small for {box.text}")
    first = y + height / 2 - (len(box.text) - 1) * _LINE_PX / 2
    lines = [
        _words(text, x + width / 2, first + number * _LINE_PX, "" if number else "name")
        for number, text in enumerate(box.text)
    ]
    drawn = _rectangle(box.at, box.kind) + "".join(lines)
    return f"<a href={quoteattr(link(box.page))}>{drawn}</a>" if link and box.page else drawn


def _arrow(arrow: Arrow, boxes: dict[str, Box], name: str) -> str:
    points = [_point(place, boxes) for place in arrow.path]
    line = "L".join(f"{x:g} {y:g}" for x, y in points)
    head = f"url(#{name}-head)"
    ends = {"none": "", "end": f' marker-end="{head}"'}
    ends["both"] = f'{ends["end"]} marker-start="{head}"'
    drawn = f'<path{_class("dashed" if arrow.dashed else "")} d="M{line}"{ends[arrow.heads]}/>'
    return drawn + (_words(arrow.text, *(arrow.text_at or _middle(points)), "halo"))


def _point(place: str | Point, boxes: dict[str, Box]) -> Point:
    if isinstance(place, str):
        box, _, side = place.partition(".")
        return boxes[box].side(side)
    return place


def _middle(points: list[Point]) -> Point:
    """Return the middle of the longest straight piece."""

    def length(piece: tuple[Point, Point]) -> float:
        (x0, y0), (x1, y1) = piece
        return abs(x1 - x0) + abs(y1 - y0)

    (x0, y0), (x1, y1) = max(pairwise(points), key=length)
    return (x0 + x1) / 2, (y0 + y1) / 2


def _rectangle(at: tuple[float, float, float, float], kind: str) -> str:
    x, y, width, height = at
    return (
        f'<rect{_class(kind)} x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
        f'rx="{_CORNER_PX}"/>'
    )


def _words(text: str, x: float, y: float, kind: str = "") -> str:
    return f'<text{_class(kind)} x="{x:g}" y="{y:g}">{escape(text)}</text>' if text else ""


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def names() -> Iterator[str]:
    """Yield the names of all diagrams."""
    return (path.stem for path in sorted((DOCS / "diagrams").glob("*.yml")))


if __name__ == "__main__":
    for each in names():
        (DOCS / f"images/{each}.svg").write_text(draw(each))
