"""How many servers, users or requests per second, in words."""

from servetwin.app.reports.how_many.device_words import devices_words
from servetwin.app.reports.how_many.slo_target import figure_words, target_words
from servetwin.app.scenario.answers import FEWEST, Answer, What
from servetwin.sim.experiments.capacity import SLOTarget
from servetwin.workloads.rows import counted

_FEW = 10
_CUT_FROM = 39
"""An interval over fewer draws has them all (``sim.experiments.how_many``)."""


def sentence(answer: Answer, target: SLOTarget, load: str) -> str:
    """Return the answer in one sentence; ``load`` says of which requests: ``this trace``."""
    if answer.problem:
        return f"No answer: {answer.problem}."
    if not answer.count:
        return _none_holds(answer, target, load)
    limit, held = target_words(target), answer.at
    subject, is_one = _subject(answer, answer.count), answer.count == 1
    if answer.what in FEWEST:
        said = f"{subject} {'holds' if is_one else 'hold'} {limit} for {load}"
    else:
        verb = "is" if is_one and answer.what == "users" else "are"
        said = f"{subject} {verb} served with {limit} by {devices_words(answer.devices)}"
    if held is not None and answer.beyond is None:
        said += f": {figure_words(target, held.factor, held.interval)}"
    return f"{said}{_beyond(answer, target)}."


def spread_sentence(answer: Answer) -> str:
    """Return which answers other traffic of the same kind has; empty without replications."""
    if answer.interval is None or not answer.count:
        return ""
    ends = _ends(answer)
    if answer.what == "rate":
        return f"Other traffic of this kind allows {ends} requests/s (95 %)."
    all_of = f"{answer.draws} draws of other traffic of this kind"
    of = all_of if answer.draws < _CUT_FROM else f"Nine of ten of {all_of}"
    if answer.interval[0] == answer.interval[1] is not None:
        return f"The answer is the same in {of[0].lower()}{of[1:]}."
    return f"{of} {'need' if answer.what in FEWEST else 'allow'} {ends}."


def _ends(answer: Answer) -> str:
    low, high = answer.interval or (None, None)
    if low is None:
        return "more than any that was tried"
    end = "or more" if high is None else f"to {_number(answer.what, high)}"
    return f"{_number(answer.what, low)} {end}"


def few_words(target: SLOTarget, requests: int) -> str:
    """Return that single requests decide, where it is so; else nothing."""
    may_miss = (1 - target.attainment) * requests
    if may_miss >= _FEW:
        return ""
    return (
        f"Only {max(0, int(may_miss + 1e-9))} of {requests:,} requests may miss the SLO, so single "
        "ones decide: take a longer trace."
    )


def _none_holds(answer: Answer, target: SLOTarget, load: str) -> str:
    limit, beyond = target_words(target), answer.beyond
    has = f": {figure_words(target, beyond.factor, beyond.interval)}" if beyond else ""
    if answer.what == "users":
        return f"Not even 1 user is served with {limit}{has}."
    if answer.what == "rate":
        return f"No rate holds {limit}, not even requests that come alone{has}."
    most = _subject(answer, beyond.count) if beyond else "any number"
    return f"No number of servers holds {limit} for {load}, not even {most}{has}."


def _beyond(answer: Answer, target: SLOTarget) -> str:
    beyond = answer.beyond
    if beyond is None:
        return "" if answer.what in FEWEST else "; more were not tried"
    number, is_one = _number(answer.what, beyond.count), beyond.count == 1
    figure = figure_words(target, beyond.factor, beyond.interval)
    if beyond.load is not None and beyond.load > 1:
        busy = f"{100 * beyond.load:.3g} % of what {'it completes' if is_one else 'they complete'}"
        return f"; {number} {'is' if is_one else 'are'} overloaded ({busy} arrives): {figure}"
    return f"; {number} {'misses' if is_one else 'miss'} it: {figure}"


def _subject(answer: Answer, count: float) -> str:
    if answer.what == "users":
        return f"{counted(int(count), 'user')} at a time"
    if answer.what == "rate":
        return f"{count:.4g} requests/s"
    if answer.what == "devices" and len(answer.devices) == 1:
        return devices_words(dict.fromkeys(answer.devices, int(count)))
    return counted(int(count), "replica" if answer.what == "replicas" else "device")


def _number(what: What, count: float) -> str:
    return f"{count:.4g}" if what == "rate" else f"{count:,.0f}"
