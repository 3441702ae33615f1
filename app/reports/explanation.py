"""What became of a request, in words and in a table."""

from collections.abc import Sequence
from dataclasses import asdict

from servetwin.app.reports.table import table_lines, wrapped
from servetwin.app.reports.tables import note_lines
from servetwin.app.words import asset_table
from servetwin.sim.explain.explain import Explanation
from servetwin.sim.records.metrics import duration_unit

# A delay below this share of the latency is not what made a request slow.
WORTH_NAMING = 0.1

_BAR = 40
_OWN_WORK = ("prefill", "decode")


def verdict(explanation: Explanation) -> str:
    """Return one sentence on the delay that cost most, if any is worth naming."""
    if explanation.e2e_s is None or explanation.status != "finished":
        return f"{explanation.status}: {explanation.error or 'reason unknown'}"
    if not explanation.parts_s:
        return "finished: its stamps do not say where its time went"
    if "streaming" in explanation.parts_s:
        return _from_outside(explanation)
    if part := costliest_delay(explanation):
        return _complaint(explanation, part)
    own_s = sum(explanation.parts_s.get(part, 0.0) for part in _OWN_WORK)
    return f"no queueing delay: {_of(own_s, explanation.e2e_s)} was its own compute"


def costliest_delay(explanation: Explanation) -> str | None:
    """Return the part of the latency, beside its own compute, that cost most; None where none is
    worth naming."""
    delays_s = {part: s for part, s in explanation.parts_s.items() if part not in _OWN_WORK}
    part = max(delays_s, key=delays_s.__getitem__, default="")
    e2e_s = explanation.e2e_s or 0.0
    return part if part and 0 < WORTH_NAMING * e2e_s <= delays_s[part] else None


def explanation_lines(explanation: Explanation) -> list[str]:
    """Return the verdict, the parts with bars, and the neighbours of the request."""
    return [
        request_line(explanation),
        *wrapped([verdict(explanation)]),
        *(["", *parts_table(explanation)] if explanation.parts_s else []),
        *(["", *neighbour_lines(explanation)] if explanation.neighbours else []),
        *note_lines(explanation.notes),
    ]


def request_line(explanation: Explanation) -> str:
    """Return the name, the lengths and the arrival of a request."""
    return (
        f"request {explanation.request_id} ({explanation.prompt_tokens} prompt, "
        f"{explanation.output_tokens} output tokens), "
        f"scheduled at {explanation.scheduled_s:.3f} s on replica {explanation.replica}"
    )


def slowest_lines(explanations: Sequence[Explanation]) -> list[str]:
    """Return a line per request with its parts, and its verdict below."""
    if not explanations:
        return ["no request finished"]
    parts = list(explanations[0].parts_s)
    unit, factor = duration_unit(one.e2e_s for one in explanations)
    lines = ["".join(f"{name:>12}" for name in (f"e2e, {unit}", *parts))]
    for one in explanations:
        times_s = (one.e2e_s or 0.0, *one.parts_s.values())
        lines += ["", *wrapped([f"{one.request_id}: {verdict(one)}"])]
        lines.append("".join(f"{factor * s:>12.{1 if unit == 'ms' else 3}f}" for s in times_s))
    if len(explanations) > 1:
        lines += note_lines(dict.fromkeys(note for one in explanations for note in one.notes))
    return lines


def parts_table(explanation: Explanation) -> list[str]:
    """Return every part in seconds and as a share of the latency; they sum to the last line."""
    e2e_s = explanation.e2e_s or 0.0
    rows = []
    for part, part_s in explanation.parts_s.items():
        share = part_s / e2e_s if e2e_s else 0.0
        bar = "█" * round(_BAR * share)
        rows.append([part, f"{part_s:.4f}", f"{100 * share:.1f} %", bar])
    rows.append(["E2E latency", f"{e2e_s:.4f}", "", ""])
    return table_lines(["part", "seconds", "share", ""], rows, "<>><")


def neighbour_lines(explanation: Explanation) -> list[str]:
    """Return the requests beside it and its prefix-cache hits; nothing where these are unknown."""
    neighbours = explanation.neighbours
    if neighbours is None:
        return []
    waiting = "" if neighbours.waiting is None else f", {neighbours.waiting} waiting"
    batch = neighbours.mean_batch
    decoded = f"; it decoded in batches of {batch:.1f} on average" if batch else ""
    return [
        f"on arrival: {neighbours.running} running{waiting}{decoded}",
        f"{explanation.cached_tokens} of {explanation.prompt_tokens} prompt tokens came from the "
        f"prefix cache, {explanation.preemptions} preemptions",
    ]


def as_dict(explanation: Explanation) -> dict[str, object]:
    """Return an explanation and its verdict, for JSON."""
    fields = asdict(explanation)
    fields["company"] = fields.pop("neighbours")  # the key of version 0.1
    return {**fields, "verdict": verdict(explanation)}


def _complaint(explanation: Explanation, part: str) -> str:
    e2e_s = explanation.e2e_s or 0.0
    spent = _of(explanation.parts_s[part], e2e_s)
    if part == "queue":
        return _waited(explanation)
    if part == "preempted":
        times = "once" if explanation.preemptions == 1 else f"{explanation.preemptions} times"
        return f"preempted {times}: {spent} to get back to where it was"
    sentences: dict[str, str] = asset_table("words.yaml")["delays"]
    return sentences[part].format(spent)


def _from_outside(explanation: Explanation) -> str:
    lag_s, first_s, streaming_s = explanation.parts_s.values()
    late = f"the client sent it {lag_s:.3g} s late; " if lag_s > 0.01 else ""
    return f"{late}its first token took {first_s:.3g} s, the rest of its answer {streaming_s:.3g} s"


def _waited(explanation: Explanation) -> str:
    queue_s, waited_s = explanation.parts_s["queue"], explanation.waited_s or 0.0
    if waited_s < queue_s / 2:
        return f"waited {queue_s - waited_s:.3g} s for a slot on the decode replica"
    reasons = []
    if explanation.neighbours and (before := explanation.neighbours.waiting):
        reasons.append(f"{before} request{'s were' if before > 1 else ' was'} ahead of it")
    if explanation.cause:
        reasons.append(asset_table("words.yaml")["causes"][explanation.cause]["of_one"])
    because = f" because {' and '.join(reasons)}" if reasons else ""
    return f"waited {waited_s:.3g} s of its {explanation.ttft_s or 0.0:.3g} s TTFT{because}"


def _of(part_s: float, whole_s: float) -> str:
    return f"{part_s:.3g} s of {whole_s:.3g} s"
