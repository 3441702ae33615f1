"""Warnings and notes beside the figures: reasons to doubt them, and what to try after failures."""

import json
import re
from collections.abc import Iterator, Mapping
from importlib import resources
from textwrap import fill
from typing import Any

import pandas as pd

from servetwin.loadtest.report.prompt_cache import prompt_cache_line, prompt_cache_warning
from servetwin.loadtest.report.records import outage_lines
from servetwin.sim.records.run import Run
from servetwin.workloads.rows import counted

CLOSED_LOOP = (
    "CLOSED LOOP: users wait while the server stalls, so fewer requests meet the stall than in an "
    "open loop (coordinated omission); --arrivals measures an open loop"
)

PROMPT_TEXT = "the server does not know these token ids: try --prompt text"
_FILE = resources.files("servetwin.loadtest").joinpath("report/hints.json")
_HINTS: list[dict[str, str]] = json.loads(_FILE.read_text("utf-8"))
"""The kind of a failure, words in its first message, and what to try."""


def load_notes(run: Run) -> list[str]:
    """Return lines on the closed loop, warm-up, hang-ups, retries, prompts, late follow-ups."""
    return [wrapped(line) for line in _notes(run)]


def wrapped(line: str) -> str:
    """Wrap a line of a report below 100 columns."""
    return fill(line, 99, subsequent_indent="  ")


def _endpoint_notes(endpoint: Mapping[str, Any], rows: pd.DataFrame) -> Iterator[str]:
    """Yield a line each on times that are undefined, and on the models of a mix."""
    options = endpoint.get("options") or {}
    if endpoint.get("api") == "embeddings":
        yield (
            "embeddings have no tokens out: TTFT and TPOT are undefined; E2E latency is the time "
            "to the whole embedding"
        )
    elif options.get("whole"):
        yield (
            "answers were not streamed (--no-stream): TTFT, TPOT and chunk gaps are undefined; E2E "
            "latency is the time to the whole answer"
        )
    if options.get("lora"):
        counts = rows["model"].value_counts()
        shares = ", ".join(f"{name} {n} ({n / len(rows):.1%})" for name, n in counts.items())
        yield f"requests by model: {shares}"


def _notes(run: Run) -> Iterator[str]:
    options, delivered, rows = run.scenario.get("options", {}), run.extra["delivered"], run.requests
    if options.get("concurrency"):
        yield CLOSED_LOOP
    yield from _endpoint_notes(run.scenario.get("endpoint", {}), rows)
    if count := int(rows["warm_up"].sum()) if "warm_up" in rows else 0:
        was = counted(count, "request")
        yield f"warm-up: {was} due in the first {options['warm_up_s']:g} s, in no figure below"
    if count := delivered.get("cancelled_by_test"):
        hung_up = counted(count, "request")
        yield f"cancellation test: clients hung up on {hung_up}; they did not fail"
    if count := delivered.get("retries"):
        retried = counted(int((rows["attempts"] > 1).sum()), "request")
        more = "retry" if count == 1 else "retries"
        yield (
            f"{count} {more} of {retried}: latencies count from when a request was first due, with "
            "the wait before each retry"
        )
    if shares := run.extra.get("prompt_cache"):
        yield prompt_cache_line(shares, run.meta["prompt_salt"])
        if warning := prompt_cache_warning(shares):
            yield warning
    if count := delivered.get("too_late"):
        yield f"{counted(count, 'follow-up')} not sent: due after the duration"
    if (advice := hint(delivered["first_messages"])) == PROMPT_TEXT:
        yield f"hint: {advice}"


def hint(first_messages: Mapping[str, str]) -> str | None:
    """Return what to try, by the first message of each kind of failure; None without advice."""
    for rule in _HINTS:
        message = first_messages.get(rule["failure"])
        if message is not None and re.search(rule["words"], message, re.IGNORECASE):
            return rule["advice"]
    return None


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
