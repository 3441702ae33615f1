"""Warnings and notes beside the figures: reasons to doubt them, and what to try after failures.

How much of the prompts the server's prefix cache knew, beside what the load itself shares.

A server finds a prompt token in its cache because an earlier request of the load had it, because
the server adds it to every prompt (a chat template), or because an earlier load had it. The last
makes TTFT shorter than new prompts have it, so a run where it happened is marked.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from servetwin.loadtest.report.records import outage_lines
from servetwin.sim.records.metrics import duration, measured
from servetwin.sim.records.run import Run
from servetwin.workloads.program.package import shipped_json
from servetwin.workloads.readers.prompt_fields import texts_of
from servetwin.workloads.request import Request
from servetwin.workloads.rows import counted
from servetwin.workloads.statistics.statistics import endless_hits
from servetwin.workloads.trace import Trace

# Share of the prompt tokens that may be cached for other reasons: a first token, a retry.
TOLERANCE = 0.01

# Characters of a real prompt that are compared at once.
PIECE = 64


class CacheCounts(NamedTuple):
    """Prompt tokens that the server looked up in its prefix cache, and those it found there."""

    looked_up: int
    found: int


def prompt_cache(
    requests: pd.DataFrame, trace: Trace, metrics: CacheCounts | None = None
) -> dict[str, Any]:
    """Return the shares of the prompt tokens: cached, shared by the load itself, added.

    ``said_by`` says where ``cached_share`` comes from: the usage of the answers, or the ``metrics``
    of the server, which count all of its clients; both are None where the server does not say.
    ``own_share`` is what a cache without limit finds of the load in an empty server, and
    ``added_share`` what the server adds to every prompt.
    """
    wanted = {request.request_id: request for request in trace}
    sent = requests[requests["sent_s"].notna()].sort_values("scheduled_s")["request_id"]
    finished = requests[requests["status"] == "finished"]
    cached_share, said_by = _cached_share(finished, metrics)
    own_share = shared_share([wanted[name] for name in sent if name in wanted])
    if "lane" in requests:  # lanes make their requests, and know what they share
        tokens = requests[["endless_cached_tokens", "prompt_tokens"]].sum()
        own_share = float(tokens.iloc[0] / max(1, tokens.iloc[1]))
    return {
        "cached_share": cached_share,
        "said_by": said_by,
        "own_share": own_share,
        "added_share": _added_share(finished, wanted),
    }


def shared_share(requests: list[Request]) -> float:
    """Return the share of the prompt tokens that a request before has, as a cache finds them."""
    prompts = [_in_blocks(request) for request in requests]
    hits = zip(requests, prompts, endless_hits(prompts, cached_answers=False), strict=True)
    shared_tokens = sum(one.prompt_tokens * hit / prompt.prompt_tokens for one, prompt, hit in hits)
    prompt_tokens = sum(request.prompt_tokens for request in requests)
    return shared_tokens / prompt_tokens if prompt_tokens else 0.0


def _in_blocks(request: Request) -> Request:
    """Return a request with the blocks of its prompt; of a real one each has ``PIECE`` characters,
    which count as its tokens."""
    if request.prompt is None:
        return request
    text = "\n".join(texts_of(request.prompt))
    pieces = [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
    ids = accumulate(pieces, lambda before, piece: hash((before, piece)), initial=0)
    blocks, length = tuple(ids)[1:], max(1, len(text))
    return replace(request, prompt_tokens=length, prefix_block_ids=blocks, block_tokens=PIECE)


def prompt_cache_line(shares: Mapping[str, Any], salt: str) -> str:
    """Return a line on the prompts of a load test: their salt, what was cached, what is shared."""
    if shares["cached_share"] is None:
        cached = "the server does not say what its prefix cache knew"
    else:
        source = {"usage": "usage", "metrics": "server's metrics"}[shares["said_by"]]
        cached = f"{shares['cached_share']:.1%} of their tokens were cached (by the {source})"
    return f"prompts: salt {salt}; {cached}, the load itself shares {shares['own_share']:.1%}"


def prompt_cache_warning(shares: Mapping[str, Any]) -> str | None:
    """Return the warning that the server knew prompts from before; None where it did not."""
    cached_share = shares["cached_share"]
    explained = shares["own_share"] + shares["added_share"]
    if cached_share is None or cached_share <= explained + TOLERANCE:
        return None
    return _TEXTS["cached"].format(cached=cached_share, explained=explained)


def _cached_share(
    finished: pd.DataFrame, metrics: CacheCounts | None
) -> tuple[float | None, Literal["usage", "metrics"] | None]:
    reported = finished[finished["cached_reported"].astype(bool)]
    if prompt_tokens := int(reported["prompt_tokens"].sum()):
        return int(reported["cached_tokens"].sum()) / prompt_tokens, "usage"
    if metrics and metrics.looked_up:
        return metrics.found / metrics.looked_up, "metrics"
    return None, None


def _added_share(finished: pd.DataFrame, wanted: Mapping[str, Request]) -> float:
    """Return the share of what the server adds to every prompt: the least of any request."""
    known = finished[finished["request_id"].isin(wanted)]
    if known.empty:
        return 0.0
    wanted_tokens = known["request_id"].map({name: r.prompt_tokens for name, r in wanted.items()})
    added_tokens = max(0, int((known["prompt_tokens"] - wanted_tokens).min()))
    return added_tokens * len(known) / max(1, int(known["prompt_tokens"].sum()))


_TEXTS: dict[str, str] = shipped_json("loadtest/report/load_notes.json")
# The kind of a failure, words in its first message, and what to try.
_HINTS: list[dict[str, str]] = shipped_json("loadtest/report/hints.json")
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
    if options.get("warm_up_s") and (count := int(rows["warm_up"].sum())):
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
    if lanes := scenario.get("lanes"):
        return f"in {counted(lanes['lanes'], 'lane')}"
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
