"""Which addresses other machines can reach."""

import pytest

from servetwin.workloads.program.loopback import is_loopback


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost", "LOCALHOST", "a.localhost"]
)
def test_loopback_addresses_stay_on_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    ["0.0.0.0", "::", "192.168.1.7", "fe80::1", "example.org", "", "127.evil.example", "[::1%"],
)
def test_any_other_address_lets_others_in(host: str) -> None:
    assert not is_loopback(host)
