"""Warnings and notes beside the figures: reasons to doubt them, and what to try after failures."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from servetwin.loadtest.report.prompt_cache import prompt_cache_line, prompt_cache_warning
from servetwin.loadtest.report.records import outage_lines
from servetwin.sim.records.metrics import duration, measured
from servetwin.sim.records.run import Run
from servetwin.workloads.rows import counted

_FOLDER = resources.files("servetwin.loadtest").joinpath("report")
_TEXTS: dict[str, str] = json.loads(_FOLDER.joinpath("load_notes.json").read_text("utf-8"))
_HINTS: list[dict[str, str]] = json.loads(_FOLDER.joinpath("hints.json").read_text("utf-8"))
"""The kind of a failure, words in its first message, and what to try."""
Lengths: TypeAlias = "Sequence[float] | pd.Series[Any]"
CLOSED_LOOP = _TEXTS["closed loop"]
PROMPT_TEXT = "the server does not know these token ids: try --prompt text"


def _endpoint_notes(endpoint: Mapping[str, Any], rows: pd.DataFrame) -> Iterator[str]:
    """Yield a line each on times that are undefined, and on the models of a mix."""
    options = endpoint.get("options") or {}
    if endpoint.get("api") == "embeddings":
        yield _TEXTS["embeddings"]
    elif options.get("whole"):
        yield _TEXTS["whole"]
    if options.get("lora"):
        counts = rows["model"].value_counts()
        shares = ", ".join(f"{name} {n} ({n / len(rows):.1%})" for name, n in counts.items())
        yield _TEXTS["models"].format(shares=shares)


def load_notes(run: Run) -> Iterator[str]:
    """Yield lines on the closed loop, warm-up, hang-ups, retries, prompts, late follow-ups."""
    options, delivered, rows = run.scenario.get("options", {}), run.extra["delivered"], run.requests
    if options.get("concurrency"):
        yield CLOSED_LOOP
    yield from _endpoint_notes(run.scenario.get("endpoint", {}), rows)
    if count := int(rows["warm_up"].sum()) if "warm_up" in rows else 0:
        requests = counted(count, "request")
        yield _TEXTS["warm-up"].format(requests=requests, seconds=options["warm_up_s"])
    if count := delivered.get("cancelled_by_test"):
        yield _TEXTS["cancelled"].format(requests=counted(count, "request"))
    if count := delivered.get("retries"):
        retries = f"{count} {'retry' if count == 1 else 'retries'}"
        retried = counted(int((rows["attempts"] > 1).sum()), "request")
        yield _TEXTS["retried"].format(retries=retries, requests=retried)
    if shares := run.extra.get("prompt_cache"):
        yield prompt_cache_line(shares, run.meta["prompt_salt"])
        yield from filter(None, [prompt_cache_warning(shares)])
    if count := delivered.get("too_late"):
        yield _TEXTS["too late"].format(followers=counted(count, "follow-up"))
    if (advice := hint(delivered.get("first_messages", {}))) == PROMPT_TEXT:
        yield f"hint: {advice}"


def hint(first_messages: Mapping[str, str]) -> str | None:
    """Return what to try, by the first message of each kind of failure; None without advice."""
    for rule in _HINTS:
        message = first_messages.get(rule["failure"])
        if message is not None and re.search(rule["words"], message, re.IGNORECASE):
            return rule["advice"]
    return None


def failure_words(first_messages: Mapping[str, str]) -> str:
    """Return why no request finished, after a colon: what to try, or the first message."""
    why = hint(first_messages) or next(iter(first_messages.values()), "")
    return f": {why}" if why else ""


def load_warnings(delivered: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each reason to doubt the figures: how the load and its answers went."""
    if limits := delivered.get("limited_by"):
        yield _TEXTS["limited"].format(reasons="; ".join(limits))
    if lost := delivered.get("lost_processes"):
        yield _TEXTS["died"].format(lost=lost, processes=delivered["processes"])
    if resent := delivered.get("resent"):
        yield _TEXTS["resent"].format(requests=resent)
    yield from outage_lines(delivered.get("outages", []))
    requests = cut_off(delivered)
    if why := why_cut_off(delivered):
        yield "; ".join(filter(None, [f"CUT OFF: {why}", requests]))
    elif requests:
        yield _TEXTS["early"].format(requests=requests)
    yield from delivered.get("token_doubts", [])


def why_cut_off(delivered: Mapping[str, Any]) -> str | None:
    """Return why a load test ended before all was sent; None where it ended by itself."""
    stopped, interrupted = delivered.get("stopped"), delivered.get("interrupted")
    if stopped:
        return str(stopped) if interrupted else f"stopped: {stopped}"
    return "interrupted" if interrupted else None


def delivered_line(delivered: Mapping[str, Any]) -> str:
    """Return whether the load was delivered: without that, no figure of a load test can be read."""
    rates = {name: delivered.get(f"{name}_per_s") for name in ("offered", "sent")}
    processes = delivered.get("processes", 1)
    return _TEXTS["delivered"].format(
        **{name: "-" if rate is None else f"{rate:.4g}" for name, rate in rates.items()},
        lag=duration(delivered.get("lag_p99_s")),
        late=duration(delivered.get("loop_oversleep_p99_s")),
        processes=f"{processes} processes, " if processes > 1 else "",
        cpu=delivered.get("client_cpu_share", 0.0),
        verdict=delivered.get("verdict", "unknown"),
    )


def lengths_words(prompts: Lengths, outputs: Lengths) -> str:
    """Return the lengths of a load: means and p99 of its prompts and outputs."""
    sides = {"prompts": prompts, "outputs": outputs}.items()
    return ", ".join(
        f"{name} {np.mean(tokens):,.0f} tokens on average (p99 {np.percentile(tokens, 99):,.0f})"
        for name, tokens in sides
        if len(tokens)
    )


def load_facts(run: Run) -> Iterator[str]:
    """Yield how a load was sent, of which lengths, when, and by which versions."""
    scenario, rows = run.scenario, run.requests
    endpoint = scenario.get("endpoint", {})
    if "force_length" in endpoint:
        length = "forced" if endpoint["force_length"] else "free"
        prompts = {"ids": "token ids", "text": "text"}[endpoint["prompt"]]
        api = f"{endpoint.get('dialect', 'openai')} {endpoint['api']}"
        yield f"{_pace(scenario)}; {api}, prompts as {prompts}, output length {length}"
    outputs = rows.get("asked_output_tokens", rows["output_tokens"])
    yield from filter(None, [lengths_words(rows["prompt_tokens"], outputs), made_words(run.meta)])


def _pace(scenario: Mapping[str, Any]) -> str:
    if users := scenario.get("options", {}).get("concurrency"):
        return f"in a closed loop of {counted(users, 'user')}"
    arrivals = scenario.get("load", {}).get("arrivals")
    rate = f"at {scenario['rate_per_s']:.4g}/s" + (f" ({arrivals})" if arrivals else "")
    return f"{rate}, follow-ups after answers" if scenario.get("closed_loop") else rate


def outcome_lines(run: Run) -> Iterator[str]:
    """Yield each kind of failure with its first message, and how many answers were short."""
    delivered = run.extra["delivered"]
    messages = dict(delivered["first_messages"])
    if delivered.get("not_sent") and delivered.get("in_flight"):
        messages["cancelled"] = cut_off(delivered)
    for kind, count in delivered["failures"].items():
        yield f"  {count} x {kind}: {messages.get(kind, '')}"[:99]
    rows = measured(run.requests)
    short = (rows["status"] == "finished") & (rows["output_tokens"] < rows["asked_output_tokens"])
    if short.any():
        yield f"  {short.sum()} finished with fewer tokens than in the trace"


def made_words(facts: Mapping[str, Any]) -> str:
    """Return when and by which versions a load test was made, of what ``machine_facts`` noted."""
    names = {"servetwin": "servetwin", "python": "Python", "cores": "cores"}
    versions = (f"{name} {facts[key]}" for key, name in names.items() if facts.get(key))
    return "; ".join(filter(None, [str(facts.get("date") or ""), ", ".join(versions)]))


def cut_off(delivered: Mapping[str, Any]) -> str | None:
    """Return how many requests the end of the test cut off."""
    not_sent, in_flight = delivered.get("not_sent", 0), delivered.get("in_flight", 0)
    if not not_sent + in_flight:
        return None
    return f"{not_sent} requests were not sent, {in_flight} were in flight"
