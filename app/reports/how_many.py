"""How many servers, users or requests per second: as a sentence, a table and JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from servetwin.app.reports.table import WIDTH, table_lines, wrapped
from servetwin.app.scenario.answers import FEWEST, WAITING, Answer, CurvePoint, What, best
from servetwin.app.words import METRICS, RESOURCES, asset_table, figure_words, target_words
from servetwin.sim.catalogue.shipped import shipped_hardware
from servetwin.sim.experiments.capacity import SLOTarget
from servetwin.sim.experiments.scenario import UNKNOWN_DEVICE
from servetwin.workloads.rows import counted

HEADS: Mapping[What, str] = asset_table("words.yaml")["how_many"]["counts"]
HEAD_MEANINGS: Mapping[str, str] = asset_table("words.yaml")["how_many"]["columns"]
HOLDS_IN = "resamples that pass"


def headline(answers: Sequence[Answer], target: SLOTarget, load: str) -> str:
    """Return the answer of the best candidate, named where there are several."""
    answer = best(answers) or answers[0]
    text = sentence(answer, target, load)
    return text if len(answers) == 1 else f"{answer.label}: {text}"


def table_rows(answers: Sequence[Answer], target: SLOTarget) -> list[dict[str, str]]:
    """Return a row per candidate, as texts by head; columns that all lack are left out."""
    rows = [_row(answer, target) for answer in answers]
    empty = {head for head in rows[0] if not any(row[head] for row in rows)} if rows else set()
    return [{head: text for head, text in row.items() if head not in empty} for row in rows]


def report_lines(
    answers: Sequence[Answer], target: SLOTarget, load: str, requests: int
) -> list[str]:
    """Return what ``servetwin capacity --replicas`` and ``--users`` print."""
    answer = best(answers) or answers[0]
    texts = headline(answers, target, load), spread_sentence(answer), few_words(target, requests)
    table, tried = _aligned(table_rows(answers, target)), _tried(answer, target)
    return [*wrapped(texts), "", *table, "", *tried, *_limited(answer)]


def as_record(
    answers: Sequence[Answer], target: SLOTarget, load: str, record: Mapping[str, Any]
) -> dict[str, Any]:
    """Return all answers as JSON has them; figures that are without end are None."""
    winner = best(answers)
    return {
        "what": answers[0].what,
        "answer": headline(answers, target, load),
        "best": None if winner is None else winner.label,
        "slo": {**asdict(target.slo), "attainment": target.attainment},
        "candidates": [asdict(answer) for answer in answers],
        **record,
    }


def _row(answer: Answer, target: SLOTarget) -> dict[str, str]:
    held, beyond = answer.at, answer.beyond
    missed = f"{_plain(beyond.count)}: {_missed(target, beyond)}" if beyond else ""
    return {
        "candidate": answer.label,
        HEADS[answer.what]: _count(answer),
        "90 % interval" if answer.what != "rate" else "95 % interval": _spread(answer),
        "at this size": _figure(target, held) if held else "",
        HOLDS_IN: _passing(held) if held else "",
        "nearest miss": missed,
        "hardware": devices_words(answer.devices) if answer.count else "",
        "cost per hour": "" if answer.cost_per_h is None else f"{answer.cost_per_h:,.2f}",
        "problem": answer.problem,
    }


def _figure(target: SLOTarget, point: CurvePoint) -> str:
    return figure_words(target, point.factor, point.interval)


def _missed(target: SLOTarget, point: CurvePoint) -> str:
    return "overloaded" if (point.load or 0) > 1 else _figure(target, point)


def _passing(point: CurvePoint) -> str:
    return "" if point.holding is None else f"{point.holding} of {point.draws}"


def _count(answer: Answer) -> str:
    if answer.problem:
        return ""
    return "none holds" if answer.count is None else _plain(answer.count)


def _spread(answer: Answer) -> str:
    if answer.interval is None:
        return ""
    low, high = ("none" if end is None else _plain(end) for end in answer.interval)
    return low if low == high else f"{low} to {high}"


def _plain(count: float) -> str:
    return f"{count:,.0f}" if count == int(count) else f"{count:.4g}"


def _aligned(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the rows below their heads; candidates one cell a line where they are too wide."""
    lines = table_lines(list(rows[0]), [list(row.values()) for row in rows], "<")
    if max(map(len, lines)) <= WIDTH:
        return lines
    listed = []
    for row in rows:
        first, *others = ((head, text) for head, text in row.items() if text)
        listed += [first[1], *(f"  {head:<16}{text}" for head, text in others)]
    return listed


def _tried(answer: Answer, target: SLOTarget) -> list[str]:
    """Return every count that was simulated, those that miss the target with a star."""
    if not answer.points:
        return []
    rows = [
        [_plain(point.count), _figure(target, point), _passing(point), "" if point.holds else "*"]
        for point in answer.points
    ]
    lines = table_lines([HEADS[answer.what], "", HOLDS_IN, ""], rows, "><")
    loads = [point.load for point in answer.points if point.load is not None]
    overloaded = answer.what in FEWEST and max(loads, default=0.0) > 1
    star = " or the servers are overloaded" if overloaded else ""
    return [*lines, "", f"* the SLO is missed{star}; rows without resamples are the trace itself"]


def _limited(answer: Answer) -> list[str]:
    """Return the saturation of the servers and what limits them, where a rate was searched."""
    capacity = answer.capacity
    if capacity is None:
        return []
    missed, limiting = capacity.missed, capacity.limiting
    limit = "saturation: above it, the queue grows without bound"
    if missed is not None:
        share, rate = 100 * missed.shares["all"], f"{missed.rate_per_s:.4g}/s"
        limit = f"{METRICS[capacity.limit].label}: at {rate} only {share:.2f} % meet the SLO"
    part = limiting.share_of_waiting
    due = "" if part is None else f": {100 * part:.0f} % of waiting time is due to it"
    return [
        "",
        f"saturation  {capacity.saturation_per_s.value:.4g} requests/s",
        f"limited by  {limit}",
        f"resource    {RESOURCES[limiting.resource]}{due}",
    ]


_FEW = 10
# An interval over fewer draws has them all (``sim.experiments.how_many``).
_CUT_FROM = 39


def sentence(answer: Answer, target: SLOTarget, load: str) -> str:
    """Return the answer in one sentence; ``load`` says of which requests: ``this trace``."""
    if answer.problem:
        return f"No answer: {answer.problem}."
    if not answer.count:
        return _none_holds(answer, target, load)
    limit, held = target_words(target), answer.at
    subject, is_one = _subject(answer, answer.count), answer.count == 1
    if answer.what in FEWEST:
        text = f"{subject} {'holds' if is_one else 'hold'} {limit} for {load}"
    else:
        verb = "is" if is_one and answer.what in WAITING else "are"
        text = f"{subject} {verb} served with {limit} by {devices_words(answer.devices)}"
    if held is not None and answer.beyond is None:
        text += f": {_figure(target, held)}"
    return f"{text}{_beyond(answer, target)}."


def spread_sentence(answer: Answer) -> str:
    """Return which answers other traffic of the same kind has; empty without replications."""
    if answer.interval is None or not answer.count:
        return ""
    ends = _ends(answer)
    if answer.what == "rate":
        return f"Resampled traffic allows {ends} requests/s (95 %)."
    share = "" if answer.draws < _CUT_FROM else "90 % of "
    low, high = answer.interval
    amount = _plain(low) if low is not None and low == high else ends
    every = "All " if amount != ends and not share else share
    verb = "need" if answer.what in FEWEST else "allow"
    return f"{every}{answer.draws} resampled traffic traces {verb} {amount}."


def _ends(answer: Answer) -> str:
    low, high = answer.interval or (None, None)
    if low is None:
        return "more than any that was tried"
    end = "or more" if high is None else f"to {_plain(high)}"
    return f"{_plain(low)} {end}"


def few_words(target: SLOTarget, requests: int) -> str:
    """Return that single requests decide, where it is so; else nothing."""
    may_miss = (1 - target.attainment) * requests
    if may_miss >= _FEW:
        return ""
    return (
        f"Only {max(0, int(may_miss + 1e-9))} of {requests:,} requests may miss the SLO, so single "
        "ones decide: use a longer trace."
    )


def _none_holds(answer: Answer, target: SLOTarget, load: str) -> str:
    limit, beyond = target_words(target), answer.beyond
    has = f": {_figure(target, beyond)}" if beyond else ""
    if answer.what in WAITING:
        return f"Not even 1 {answer.what[:-1]} is served with {limit}{has}."
    if answer.what == "rate":
        return f"No rate holds {limit}, not even requests that come alone{has}."
    most = _subject(answer, beyond.count) if beyond else "any number"
    return f"No number of servers holds {limit} for {load}, not even {most}{has}."


def _beyond(answer: Answer, target: SLOTarget) -> str:
    beyond = answer.beyond
    if beyond is None:
        return "" if answer.what in FEWEST else "; more were not tried"
    number, is_one = _plain(beyond.count), beyond.count == 1
    if beyond.load is not None and beyond.load > 1:
        above = f"{100 * (beyond.load - 1):.3g} % above {'its' if is_one else 'their'} capacity"
        return f"; {number} {'is' if is_one else 'are'} overloaded: load is {above}"
    return f"; {number} {'misses' if is_one else 'miss'} it: {_figure(target, beyond)}"


def _subject(answer: Answer, count: float) -> str:
    if answer.what in WAITING:
        return f"{counted(int(count), answer.what[:-1])} at a time"
    if answer.what == "rate":
        return f"{_plain(count)} requests/s"
    if answer.what == "devices" and len(answer.devices) == 1:
        return devices_words(dict.fromkeys(answer.devices, int(count)))
    return counted(int(count), "replica" if answer.what == "replicas" else "device")


def devices_words(devices: Mapping[str, int]) -> str:
    """Return how many of which devices, joined by ``and``."""
    return " and ".join(device_words(name, count) for name, count in devices.items())


def device_words(name: str, count: int) -> str:
    """Return ``count`` devices of a name."""
    if name != UNKNOWN_DEVICE and name not in shipped_hardware():
        return f"{count:,} x {name}"
    shown = name if name == UNKNOWN_DEVICE else name.upper()
    return f"{count:,} {shown}{'' if count == 1 or shown.endswith('S') else 's'}"
