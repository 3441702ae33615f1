"""KEY=VALUE texts: what is read, and what is said of wrong ones."""

import pytest

from servetwin.workloads.errors import LoadTestError, PolicyError
from servetwin.workloads.key_values import key_value, key_values


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("a=1", ("a", "1")),
        (" a = 1 ", ("a", "1")),
        ("a=b=c", ("a", "b=c")),
        ("a=", ("a", "")),
        ("=1", ("", "1")),
    ],
)
def test_the_first_equals_sign_parts_key_and_value(text: str, pair: tuple[str, str]) -> None:
    assert key_value(text, "--set") == pair


def test_several_are_parted_by_commas() -> None:
    assert key_values("", "--x") == {}
    assert key_values("a=1,b=2,,", "--x") == {"a": "1", "b": "2"}


def test_a_key_that_is_given_twice_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"^--x: a is given twice; give it once$"):
        key_values("a=1,b=2,,a=1,", "--x")


def test_a_wrong_text_names_the_place_and_the_form() -> None:
    with pytest.raises(PolicyError, match=r"^--set: 'a' is not KEY=VALUE$"):
        key_value("a", "--set")
    with pytest.raises(
        PolicyError, match=r"^--set: 'a=1\\r\\n2' has several lines; write KEY=VALUE"
    ):
        key_value("a=1\r\n2\n", "--set")
    with pytest.raises(LoadTestError, match=r"^--slo: 'ttft' is not LIMIT=TIME$"):
        key_values("e2e=1s, ttft", "--slo", LoadTestError, "LIMIT=TIME")
