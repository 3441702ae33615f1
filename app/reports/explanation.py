"""What became of a request, in words and in a table."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from textwrap import wrap

from servetwin.app.reports.table import table_lines
from servetwin.app.reports.tables import WIDTH, note_lines
from servetwin.app.words import asset_table
from servetwin.sim.explain.explain import Explanation
from servetwin.sim.records.metrics import duration_unit

WORTH_NAMING = 0.1
"""A delay below this share of the latency is not what made a request slow."""

_BAR = 40
_OWN_WORK = ("prefill", "decode")


def verdict(found: Explanation) -> str:
    """Return one sentence on the delay that cost most, if any is worth naming."""
    if found.e2e_s is None or found.status != "finished":
        return f"{found.status}: {found.error or 'no reason is known'}"
    if "streaming" in found.parts_s:
        return _from_outside(found)
    delays_s = {part: s for part, s in found.parts_s.items() if part not in _OWN_WORK}
    part = max(delays_s, key=delays_s.__getitem__)
    if found.e2e_s == 0 or delays_s[part] < WORTH_NAMING * found.e2e_s:
        own_s = found.e2e_s - sum(delays_s.values())
        return f"nothing held it up: {_of(own_s, found.e2e_s)} were its own work"
    return _complaint(found, part)


def explanation_lines(found: Explanation) -> list[str]:
    """Return the verdict, the parts with bars, and the neighbours of the request."""
    return [
        f"request {found.request_id} ({found.prompt_tokens} prompt, {found.output_tokens} output "
        f"tokens), scheduled at {found.scheduled_s:.3f} s on replica {found.replica}",
        *wrap(verdict(found), WIDTH),
        *(["", *parts_table(found)] if found.parts_s else []),
        *(["", *neighbour_lines(found)] if found.neighbours else []),
        *note_lines(found.notes),
    ]


def slowest_lines(found: Sequence[Explanation]) -> list[str]:
    """Return a line per request with its parts, and its verdict below."""
    if not found:
        return ["no request finished"]
    parts = list(found[0].parts_s)
    unit, factor = duration_unit(one.e2e_s for one in found)
    lines = ["".join(f"{name:>12}" for name in (f"e2e, {unit}", *parts))]
    for one in found:
        times_s = (one.e2e_s or 0.0, *one.parts_s.values())
        lines += ["", *wrap(f"{one.request_id}: {verdict(one)}", WIDTH)]
        lines.append("".join(f"{factor * s:>12.{1 if unit == 'ms' else 3}f}" for s in times_s))
    notes = dict.fromkeys(note for one in found for note in one.notes if len(found) > 1)
    return [*lines, *note_lines(notes)]


def parts_table(found: Explanation) -> list[str]:
    """Return every part in seconds and as a share of the latency; they sum to the last line."""
    e2e_s = found.e2e_s or 0.0
    rows = [_part_row(part, s, s / e2e_s if e2e_s else 0.0) for part, s in found.parts_s.items()]
    rows.append(["E2E latency", f"{e2e_s:.4f}", "", ""])
    return table_lines(["part", "seconds", "share", ""], rows, "<>><")


def neighbour_lines(found: Explanation) -> list[str]:
    """Return the requests beside it and its prefix-cache hits; nothing where these are unknown."""
    neighbours = found.neighbours
    if neighbours is None:
        return []
    waiting = "" if neighbours.waiting is None else f", {neighbours.waiting} waiting"
    batch = neighbours.mean_batch
    decoded = f"; it decoded in batches of {batch:.1f} on average" if batch else ""
    return [
        f"beside it on arrival: {neighbours.running} running{waiting}{decoded}",
        f"{found.cached_tokens} of {found.prompt_tokens} prompt tokens came from the prefix cache, "
        f"{found.preemptions} preemptions",
    ]


def as_json(found: Explanation | Sequence[Explanation]) -> str:
    """Return one object, or a list of them, as JSON."""
    if isinstance(found, Explanation):
        return json.dumps(_as_dict(found))
    return json.dumps([_as_dict(one) for one in found])


def _as_dict(found: Explanation) -> dict[str, object]:
    fields = asdict(found)
    fields["company"] = fields.pop("neighbours")  # the key of version 0.1
    return {**fields, "verdict": verdict(found)}


def _complaint(found: Explanation, part: str) -> str:
    e2e_s = found.e2e_s or 0.0
    spent = _of(found.parts_s[part], e2e_s)
    match part:
        case "queue":
            return _waited(found)
        case "stalled":
            return f"the prompts of others held up its decoding for {spent}"
        case "preempted":
            times = "once" if found.preemptions == 1 else f"{found.preemptions} times"
            return f"lost its place {times}: {spent} went by until it was as far as before"
        case "transfer":
            return f"its keys and values were on the way to another replica for {spent}"
    return f"the HTTP process took {spent}"


def _from_outside(found: Explanation) -> str:
    lag_s, first_s, streaming_s = found.parts_s.values()
    late = f"the client sent it {lag_s:.3g} s late; " if lag_s > 0.01 else ""
    return f"{late}its first token took {first_s:.3g} s, the rest of its answer {streaming_s:.3g} s"


def _waited(found: Explanation) -> str:
    queue_s, waited_s, ttft_s = found.parts_s["queue"], found.waited_s or 0.0, found.ttft_s or 0.0
    if waited_s < queue_s / 2:
        return f"waited {queue_s - waited_s:.3g} s for a place on the replica that decodes"
    reasons = [asset_table("words.yaml")["causes"][found.cause]["of_one"]] if found.cause else []
    if found.neighbours and found.neighbours.waiting:
        before = found.neighbours.waiting
        reasons.insert(0, f"{before} request{'s were' if before > 1 else ' was'} before it")
    because = f" because {' and '.join(reasons)}" if reasons else ""
    return f"waited {waited_s:.3g} s of its {ttft_s:.3g} s TTFT{because}"


def _of(part_s: float, whole_s: float) -> str:
    return f"{part_s:.3g} s of {whole_s:.3g} s"


def _part_row(part: str, seconds: float, share: float) -> list[str]:
    return [part, f"{seconds:.4f}", f"{100 * share:.1f} %", "█" * round(_BAR * share)]
