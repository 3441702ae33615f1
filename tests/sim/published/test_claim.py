"""When a figure is what the notes print: in the digits that are printed."""

import pytest

from tests.support.published.claim import Claim, Number


@pytest.mark.parametrize(
    ("printed", "here", "agrees"),
    [
        ("225.08", 225.0801, True),
        ("225.08", 225.0749, False),
        ("281,125", 281125, True),
        ("281125", 281126, False),
        ("46.70e9", 46.7026e9, True),
        ("46.70e9", 46.71e9, False),
        ("1.5 to 2.5", 2.5, True),
        ("1.5 to 2.5", 1.4, False),
        ("about 2", 1.81, True),
        ("about 2", 1.7, False),
        ("up to 1", 0.999, True),
        ("up to 1", 1.001, False),
        ("128 x 1", "128 x 1", True),
        ("128 x 1", "1 x 128", False),
        ("i and j", 3.0, False),
        ("much", 3.0, False),
    ],
)
def test_a_figure_agrees_in_the_digits_that_are_printed(
    printed: str, here: Number, agrees: bool
) -> None:
    assert Claim("what", printed, here).agrees is agrees
