"""Notes beside the figures: how the load was sent, and what to try when all of it failed."""

import re
from collections.abc import Mapping
from textwrap import fill

from sim.records.run import Run
from workloads.rows import counted

CLOSED_LOOP = (
    "CLOSED LOOP: users wait while the server stalls, so fewer requests meet the stall than in an "
    "open loop (coordinated omission); --arrivals measures an open loop"
)

_HINTS = (
    # kind of failure, words in its first message, what to try
    ("no_token", r"begins '\s*<", "a web page came instead of a stream; check the URL and proxies"),
    ("no_token", "", "the stream has no text in a known field; try another --dialect or --api"),
    ("http_4xx", r"min_tokens|ignore_eos|unrecogni|extra", "try --no-force-length"),
    ("http_4xx", r"HTTP 40[13]", "set the API key: OPENAI_API_KEY, --api-key-env or --header"),
    ("http_4xx", r"HTTP 40[45]", "nothing is served at that path; try another --api or --dialect"),
    ("http_4xx", r"context|too long|max_total|max_model", "try --on-too-long clip"),
    ("http_3xx", "", "give the URL that it redirects to"),
    ("timeout", "", "no answer came in time; is the server overloaded, or --timeout too short?"),
    ("connect", "", "is the server still running?"),
)


def load_notes(run: Run) -> list[str]:
    """Return a line each on the closed loop, warm-up, hang-ups, retries and late follow-ups."""
    lines = (_closed_loop(run), _warm_up(run), _hung_up(run), _retries(run), _too_late(run))
    return [fill(line, 99, subsequent_indent="  ") for line in lines if line]


def _options(run: Run, name: str) -> object:
    return run.scenario.get("options", {}).get(name)


def _closed_loop(run: Run) -> str | None:
    return CLOSED_LOOP if _options(run, "concurrency") else None


def _warm_up(run: Run) -> str | None:
    rows = run.requests
    count = int(rows["warm_up"].sum()) if "warm_up" in rows else 0
    if not count:
        return None
    was = counted(count, "request")
    return f"warm-up: {was} due in the first {_options(run, 'warm_up_s'):g} s, in no figure below"


def _hung_up(run: Run) -> str | None:
    count = run.extra["delivered"].get("cancelled_by_test", 0)
    if not count:
        return None
    return f"cancellation test: clients hung up on {counted(count, 'request')}; they did not fail"


def _retries(run: Run) -> str | None:
    count = run.extra["delivered"].get("retries", 0)
    if not count:
        return None
    retried = counted(int((run.requests["attempts"] > 1).sum()), "request")
    more = "retry" if count == 1 else "retries"
    return (
        f"{count} {more} of {retried}: latencies count from when a request was first due, with "
        "the wait before each retry"
    )


def _too_late(run: Run) -> str | None:
    count = run.extra["delivered"].get("too_late", 0)
    if not count:
        return None
    return f"{counted(count, 'follow-up')} not sent: due after the duration"


def hint(first_messages: Mapping[str, str]) -> str | None:
    """Return what to try, by the first message of each kind of failure; None without advice."""
    for kind, words, advice in _HINTS:
        message = first_messages.get(kind)
        if message is not None and re.search(words, message, re.IGNORECASE):
            return advice
    return None
