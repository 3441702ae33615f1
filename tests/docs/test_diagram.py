"""Diagrams are drawn from their text, fit their boxes, and can be read in both themes."""

import re
from xml.etree import ElementTree

import pytest
from diagram import INKS, Box, draw, names, read_diagram

from tests.support.paths import DOCS

NAMES = list(names())


def luminance(colour: str) -> float:
    """The relative luminance of WCAG 2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    dark, light = sorted(map(luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_that_of_wcag() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", INKS)
def test_words_and_lines_stand_out(theme: str) -> None:
    inks = INKS[theme]
    for ground in inks.keys() - {"ink", "line"}:
        assert contrast(inks["ink"], inks[ground]) >= 7, ground
        assert contrast(inks["line"], inks[ground]) >= 3, ground


@pytest.mark.parametrize("name", NAMES)
def test_the_picture_is_what_the_text_says(name: str) -> None:
    """``python docs/_site/diagram.py`` draws it anew."""
    assert (DOCS / f"images/{name}.svg").read_text() == draw(name)


@pytest.mark.parametrize("name", NAMES)
def test_boxes_are_apart_and_within_the_picture(name: str) -> None:
    found = read_diagram(name)
    width, height = found.size
    frames = [box.at for box in found.boxes.values()]
    for x, y, w, h in [*frames, *(area.at for area in found.areas)]:
        assert min(x, y) >= 0
        assert (x + w <= width, y + h <= height) == (True, True)
    for number, (x, y, w, h) in enumerate(frames):
        for x2, y2, w2, h2 in frames[:number]:
            assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y


@pytest.mark.parametrize("name", NAMES)
def test_the_picture_says_in_words_what_it_shows(name: str) -> None:
    root = ElementTree.fromstring(draw(name))
    title, about = (root.find(f"{{*}}{tag}") for tag in ("title", "desc"))
    assert title is not None
    assert about is not None
    assert title.text
    assert len(about.text or "") > 100
    assert root.get("aria-labelledby") == f"{title.get('id')} {about.get('id')}"


def test_every_diagram_stands_on_a_page() -> None:
    pages = "".join(path.read_text() for path in DOCS.rglob("*.md"))
    assert set(NAMES) == set(re.findall(r"images/([\w-]+)\.svg", pages))


def test_boxes_lead_to_pages_on_the_site_alone() -> None:
    assert "<a " not in draw("loop")
    assert '<a href="to/model.md">' in draw("loop", lambda page: f"to/{page}")


@pytest.mark.parametrize(
    ("side", "place"),
    [("left", (10, 40)), ("right+5", (110, 45)), ("top-20", (40, 20)), ("bottom", (60, 60))],
)
def test_arrows_end_at_the_sides_of_boxes(side: str, place: tuple[float, float]) -> None:
    assert Box(at=(10, 20, 100, 40), text=["A"]).side(side) == place
