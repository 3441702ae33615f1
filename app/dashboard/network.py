"""Whether other machines can reach the dashboard, and what they could do then."""

from ipaddress import ip_address

OPEN_WARNING = (
    "every machine that can reach this dashboard can use it: it has no accounts, and its visitors "
    "can start load tests from here, and read and delete the runs"
)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches ``host``; a name other than localhost may lead
    elsewhere."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
