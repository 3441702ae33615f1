"""Devices in words."""

import pytest

from servetwin.app.reports.how_many import devices_words


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        ({"h100": 1}, "1 H100"),
        ({"a100-80gb": 4}, "4 A100-80GBs"),
        ({"l40s": 8}, "8 L40S"),
        ({"AMD EPYC": 2}, "2 x AMD EPYC"),
        ({"server": 3}, "3 servers"),
        ({"h100": 2, "l40s": 1}, "2 H100s and 1 L40S"),
    ],
)
def test_devices_in_words(devices: dict[str, int], words: str) -> None:
    assert devices_words(devices) == words
