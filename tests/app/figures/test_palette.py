"""Colours and looks: contrast on both pages, and for eyes that do not see red or green."""

import itertools

import numpy as np
import pytest

pytest.importorskip("plotly", reason="figures need plotly")
from app import figures
from app.figures.palette import COLOURS, DARK_PAGE, DASHES, LIGHT_PAGE


def contrast(colour: str, page: str) -> float:
    lighter, darker = sorted((luminance(colour), luminance(page)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def linear(colour: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Linear RGB of ``#rrggbb`` (sRGB, IEC 61966-2-1)."""
    c = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.asarray(np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4))


def luminance(colour: str) -> float:
    return float(linear(colour) @ [0.2126, 0.7152, 0.0722])


SIGHTS = {
    "all cones": np.eye(3),
    "no red": [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]],
    "no green": [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]],
}
"""Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB."""


def lab(
    rgb: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """CIELAB under D65."""
    to_xyz = np.array(
        [[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]]
    )
    x, y, z = np.cbrt(np.clip(to_xyz @ rgb / [0.9505, 1.0, 1.0891], 0.0089, None))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("colour", COLOURS)
def test_every_colour_stands_out_from_a_light_and_from_a_dark_page(colour: str) -> None:
    assert contrast(colour, LIGHT_PAGE) >= 3
    assert contrast(colour, DARK_PAGE) >= 3


@pytest.mark.parametrize("sight", SIGHTS)
def test_the_first_six_colours_stay_apart(sight: str) -> None:
    seen = [lab(np.clip(np.array(SIGHTS[sight]) @ linear(c), 0, 1)) for c in COLOURS[:6]]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 20


def test_looks_keep_their_place_and_differ_without_colour() -> None:
    some = figures.looks(["x", "y", "x", "z"])
    assert figures.looks(["x", "y"])["y"] == some["y"]
    many = figures.looks(map(str, range(42))).values()
    assert len({(look.dash, look.symbol) for look in many}) == 42
    assert {look.dash for look in many} == set(DASHES)
