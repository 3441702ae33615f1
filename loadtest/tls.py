"""Which certificates of servers are trusted."""

import os
import ssl

import httpx

from servetwin.workloads.errors import LoadTestError

_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


def tls_context(*, insecure: bool) -> ssl.SSLContext:
    """Return a context that trusts the authorities of ``SSL_CERT_FILE`` or ``SSL_CERT_DIR``, else
    those of certifi; an ``insecure`` one trusts every server.

    Raises ``LoadTestError`` where the variable names no certificates.
    """
    try:
        return httpx.create_ssl_context(verify=not insecure)
    except OSError as error:
        named = next((name for name in _VARIABLES if os.environ.get(name)), "TLS")
        reason = error.strerror or str(error)
        raise LoadTestError(
            f"{named} {os.environ.get(named, '')}: no certificates can be read there ({reason}); "
            "name a file in PEM format"
        ) from error
