"""Prices of device-hours: what is read, and what is refused."""

import re

import pytest

from servetwin.app.scenario.prices import Prices, parse_prices
from servetwin.workloads.errors import PolicyError


def test_prices_are_by_device_or_one_for_all_others() -> None:
    assert parse_prices("2.5", "--price").per_hour({"h100": 4}) == 10.0
    both = parse_prices("h100=3, 1", "--price")
    assert both.per_hour({"h100": 1, "l40s": 2}) == 5.0
    assert parse_prices("h100=3", "--price").per_hour({"h100": 1, "l40s": 2}) is None
    assert parse_prices("", "--price") == Prices()
    assert parse_prices("AMD_EPYC=0", "--price").per_hour({"AMD_EPYC": 3}) == 0.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cheap", "--price: 'cheap' is no price of 0 or more; write 2.5, or DEVICE=2.5"),
        ("h100=", "--price: h100: '' is no price"),
        ("-1", "'-1' is no price"),
        ("h100=nan", "--price: h100: 'nan' is no price"),
        ("inf", "'inf' is no price"),
        ("=3", "'=3' is not DEVICE=PRICE"),
        ("h100=3,h100=4", "h100 is given twice; give it once"),
        ("2 3", "'3': one price for all is given already"),
    ],
)
def test_what_is_no_price_is_named(text: str, message: str) -> None:
    with pytest.raises(PolicyError, match=re.escape(message)):
        parse_prices(text, "--price")


def test_a_price_of_a_device_that_nothing_runs_on_names_the_nearest() -> None:
    with pytest.raises(PolicyError, match=r"--price: no candidate runs on 'h10'.*'h100'"):
        parse_prices("h10=3", "--price").require_known(["h100", "l40s"], "--price")
