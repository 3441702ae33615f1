"""Contrast by WCAG 2, and colours as eyes with other cones see them."""

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Colour = npt.NDArray[np.float64]

SIGHTS = {
    "all cones": np.eye(3).tolist(),
    "no red": [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]],
    "no green": [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]],
    "no blue": [[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]],
}
"""Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB."""


def contrast(colour: str, page: str) -> float:
    """From 1 to 21."""
    lighter, darker = sorted((luminance(colour), luminance(page)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def linear(colour: str) -> Colour:
    """Linear RGB of ``#rrggbb`` (sRGB, IEC 61966-2-1)."""
    c = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.asarray(np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4))


def luminance(colour: str) -> float:
    return float(linear(colour) @ [0.2126, 0.7152, 0.0722])


def lab(rgb: Colour) -> Colour:
    """CIELAB under D65."""
    to_xyz = np.array(
        [[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]]
    )
    x, y, z = np.cbrt(np.clip(to_xyz @ rgb / [0.9505, 1.0, 1.0891], 0.0089, None))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def least_distance(colours: Sequence[str], sight: str) -> float:
    """How far the two most alike are from each other, in CIELAB."""
    seen = [lab(np.clip(np.array(SIGHTS[sight]) @ linear(c), 0, 1)) for c in colours]
    return min(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(seen, 2))
