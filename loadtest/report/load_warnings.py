"""What a reader must know before the figures of a load test."""

from collections.abc import Iterator, Mapping
from typing import Any

from servetwin.loadtest.report.outages import outage_lines


def load_warnings(delivered: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each reason to doubt the figures: how the load and its answers went."""
    if limits := delivered.get("limited_by"):
        reasons = "; ".join(limits)
        yield f"CLIENT LIMITED: the latencies below include the client's own ({reasons})"
    if lost := delivered.get("lost_processes"):
        yield f"{lost} of {delivered['processes']} processes of the load test died"
    if resent := delivered.get("resent"):
        yield f"{resent} requests were sent twice: the server was closing their connection"
    yield from outage_lines(delivered.get("outages", []))
    if requests := cut_off(delivered):
        yield f"ENDED EARLY: {requests}; they are in none of the figures below"
    yield from delivered.get("token_doubts", [])


def cut_off(delivered: Mapping[str, Any]) -> str | None:
    """Return how many requests the end of the test cut off."""
    not_sent, in_flight = delivered.get("not_sent", 0), delivered.get("in_flight", 0)
    if not not_sent + in_flight:
        return None
    return f"{not_sent} requests were not sent, {in_flight} were in flight"
