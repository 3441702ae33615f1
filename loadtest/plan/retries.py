"""Whether a request is asked again, and how long its client waits before."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import numpy as np

from loadtest.http.exchange import Exchange

BUSY_CODES = (429, 503)
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 30.0


def is_refusal(exchange: Exchange) -> bool:
    """Whether the server sent it away unread: 429, 503, or no connection."""
    if exchange.failure is None:
        return False
    return exchange.failure.kind == "connect" or exchange.status_code in BUSY_CODES


def retry_wait_s(exchange: Exchange, rng: np.random.Generator) -> float:
    """Seconds until the next attempt: what ``Retry-After`` says, else exponential backoff.

    The backoff doubles from 0.5 s up to 30 s; half of it is fixed, half drawn, so that clients who
    were refused together do not come back together.
    """
    told = exchange.headers.get("retry-after") if exchange.headers is not None else None
    asked_s = retry_after_s(told, datetime.now(UTC)) if told else None
    if asked_s is not None:
        return asked_s
    longest_s: float = min(FIRST_WAIT_S * 2.0 ** (exchange.attempts - 1), LONGEST_WAIT_S)
    return longest_s * (0.5 + 0.5 * float(rng.random()))


def retry_after_s(text: str, now: datetime) -> float | None:
    """The header's seconds or HTTP date (RFC 9110, 10.2.3), from ``now``; None for neither."""
    if text.strip().isascii() and text.strip().isdigit():
        return float(text)
    try:
        due = parsedate_to_datetime(text)
    except ValueError:
        return None
    due = due if due.tzinfo else due.replace(tzinfo=UTC)
    return max(0.0, (due - now).total_seconds())
