"""Texts of users without Markdown, and numbers with the digits that count."""

import pytest

from servetwin.app.dashboard.formatting import escaped, plain, signed
from servetwin.app.words import short


def test_texts_of_users_have_no_markup() -> None:
    assert plain("<img src=x>[a](b)`c`") == "?img src=x??a??b??c?"
    assert escaped("a *b* [c](d) $x$") == r"a \*b\* \[c\]\(d\) \$x\$"


@pytest.mark.parametrize(
    ("value", "beside", "text"),
    [
        (0.2345, 10.6, "+0.2"),
        (-3.14, 0.5, "-3.14"),
        (396_858, 50, "+396,858"),
        (0, 0, "+0"),
        (-1e-17, 5.0, "+0.00"),
    ],
)
def test_differences_have_the_digits_of_the_figure(value: float, beside: float, text: str) -> None:
    assert signed(value, beside) == text


def test_numbers_have_three_digits() -> None:
    assert [short(x) for x in (0.012345, 12.345, 123.4, 12_345.6)] == [
        "0.0123", "12.3", "123", "12,346",
    ]  # fmt: skip
