"""Which addresses are of this machine alone."""

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a name or an address; others may lead elsewhere."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost" or host.lower().endswith(".localhost")
