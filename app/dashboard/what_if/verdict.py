"""The verdict on a scenario: whether it meets its SLO, its bottleneck, and what would help."""

from dataclasses import dataclass
from typing import Literal

import pandas as pd

from servetwin.app.dashboard.prefix_advice import prefix_advice
from servetwin.app.dashboard.simulations import SimulatedScenario
from servetwin.app.words import RESOURCES, asset_table, ends
from servetwin.policies.config import PolicyConfig
from servetwin.sim.experiments.predict import Interval
from servetwin.sim.explain.bottleneck import (
    WAIT_WORTH_NAMING,
    Bottleneck,
    Limiting,
    QueueCause,
    find_bottleneck,
    limiting_resource,
)
from servetwin.sim.records.metrics import LATENCIES, SLO, duration

_WORTH_NAMING = 0.001
_ALWAYS = 0.9
"""Share of the time with a step running from which on the server looks saturated."""
_LABELS = dict(zip(LATENCIES, ("TTFT", "TPOT", "E2E"), strict=True))

Kind = Literal["holds", "unsure", "fails", "none"]

_CAUSES: dict[QueueCause, dict[str, str]] = asset_table("words.yaml")["causes"]


@dataclass(frozen=True, slots=True)
class VerdictFacts:
    """What a verdict is made of.

    ``missed`` is the share of all requests that miss each limit, ``wanted`` the share that must
    meet all. ``prefix_advice`` says why a prefix cache cannot hit; None where it can.
    """

    limits: str
    attainment: float | None
    interval: Interval | None
    missed: dict[str, float]
    refused: float
    mean_e2e_s: float
    replicas: int
    policies: PolicyConfig
    bottleneck: Bottleneck
    limiting: Limiting | None = None
    wanted: float = 0.99
    prefix_advice: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Sentences of Markdown; ``reason`` has the shares and rates behind the headline."""

    kind: Kind
    headline: str
    reason: str
    bottleneck: str
    helps: str | None

    @property
    def text(self) -> str:
        """Return the whole verdict."""
        helps = (f"**What would help:** {self.helps}",) if self.helps else ()
        return "\n\n".join([f"**{self.headline}** {self.reason}", self.bottleneck, *helps])


def facts(outcome: SimulatedScenario) -> VerdictFacts:
    """Return the facts of one simulation, without the interval over its replications."""
    policies, slo = outcome.scenario.policies, outcome.file.slo.slo()
    requests = outcome.run.requests
    pressed = find_bottleneck(outcome.run, policies.as_dict(), policies.kv_tokens)
    return VerdictFacts(
        limits=_limits(slo),
        attainment=outcome.summary["slo_attainment"] if _limits(slo) else None,
        interval=None,
        missed=_missed(requests, slo),
        refused=float((requests["status"] == "refused").mean()),
        mean_e2e_s=outcome.summary["e2e_s"]["mean"] or 0.0,
        replicas=len(outcome.scenario.servers()),
        policies=policies,
        bottleneck=pressed,
        limiting=limiting_resource(outcome.run, pressed, policies.as_dict(), slo),
        wanted=outcome.file.slo.attainment,
        prefix_advice=prefix_advice(outcome.file.workload, outcome.trace),
    )


def judge(found: VerdictFacts) -> Verdict:
    """Return the verdict on these facts."""
    reason = " ".join([*_attainment(found), *_load(found)])
    return Verdict(_kind(found), _headline(found), reason, _bottleneck(found), _helps(found))


def _limits(slo: SLO) -> str:
    given = [(label, getattr(slo, name)) for name, label in _LABELS.items()]
    return ", ".join(f"{label} ≤ {duration(s)}" for label, s in given if s is not None)


def _missed(requests: pd.DataFrame, slo: SLO) -> dict[str, float]:
    """Return the share of all requests that finished too late, by limit."""
    return {
        label: float((requests[name] > limit).mean())
        for name, label in _LABELS.items()
        if (limit := getattr(slo, name)) is not None
    }


def _kind(found: VerdictFacts) -> Kind:
    if found.bottleneck.overloaded:
        return "fails"
    if found.attainment is None:
        return "none"
    low = found.interval.low if found.interval else found.attainment
    high = found.interval.high if found.interval else found.attainment
    return "holds" if low >= found.wanted else "fails" if high < found.wanted else "unsure"


def _headline(found: VerdictFacts) -> str:
    words = {
        "holds": f"Meets the SLO ({found.limits}).",
        "fails": f"Misses the SLO ({found.limits}).",
        "unsure": f"May or may not meet the SLO ({found.limits}).",
        "none": "No SLO is set.",
    }
    said = words[_kind(found)] if found.limits else "No SLO is set."
    return f"Overloaded: the queue grows. {said}" if found.bottleneck.overloaded else said


def _attainment(found: VerdictFacts) -> list[str]:
    if found.attainment is None:
        return []
    within = f"{_percent(found.attainment)} of the requests meet it"
    between = found.interval and ends(found.interval.low, found.interval.high, _percent)
    if between:
        within += f" (90 % interval {between[0]} to {between[1]})"
    missed = [
        f"{_percent(share)} miss the {label} limit"
        for label, share in found.missed.items()
        if share > _WORTH_NAMING
    ]
    if found.refused > _WORTH_NAMING:
        missed.append(f"{_percent(found.refused)} are refused")
    reason = f"; {', '.join(missed)}" if missed else ""
    return [f"{within}, {_percent(found.wanted)} are required{reason}."]


def _load(found: VerdictFacts) -> list[str]:
    pressed = found.bottleneck
    if not pressed.overloaded:
        return []
    served = pressed.served_per_s
    above = f", {_percent(pressed.arrivals_per_s / served - 1)} too many" if served > 0 else ""
    return [
        f"{pressed.arrivals_per_s:.3g} requests arrive per second and about {max(0, served):.3g} "
        f"are served{above}; the queue grows by {pressed.growth_per_s:.3g} per second, so longer "
        "runs look worse."
    ]


def _bottleneck(found: VerdictFacts) -> str:
    pressed = found.bottleneck
    state = (
        f"Steps run {_percent(pressed.busy_share)} of the time; at most "
        f"{pressed.running_peak} of {found.policies.max_seqs} places{_memory(found)} are taken."
    )
    if cause := _short(found):
        share, why = _percent(pressed.cause_share), _CAUSES[cause]["of_most"]
        said = f"**Bottleneck:** {why} during {share} of the waiting time."
    elif _too_slow(found):
        said = "**Bottleneck:** the **step time** itself; hardly any request waits."
    else:
        return f"**No bottleneck:** hardly any request waits.{_room(found)} {state}"
    return f"{said}{_limiting(found)} {state}"


def _room(found: VerdictFacts) -> str:
    """Say why steps that never end are no limit, where that looks like one."""
    busy, places = found.bottleneck.busy_share, found.policies.max_seqs
    if busy < _ALWAYS or found.bottleneck.running_peak >= places:
        return ""
    return " A step is almost always running, and a request that comes joins the next one."


def _limiting(found: VerdictFacts) -> str:
    if found.limiting is None:
        return ""
    return f" Limiting resource: **{RESOURCES[found.limiting.resource]}**."


def _memory(found: VerdictFacts) -> str:
    peak = found.bottleneck.kv_peak_share
    return "" if peak is None else f" and {_percent(peak)} of the KV memory"


def _short(found: VerdictFacts) -> QueueCause | None:
    """Return what waiting requests wait for, where waiting matters."""
    waits = found.bottleneck.waited_s > WAIT_WORTH_NAMING * found.mean_e2e_s
    return found.bottleneck.cause if waits or found.bottleneck.overloaded else None


def _too_slow(found: VerdictFacts) -> bool:
    return any(share > 1 - found.wanted for share in found.missed.values())


def _helps(found: VerdictFacts) -> str | None:
    if _kind(found) == "holds" or not (_short(found) or _too_slow(found)):
        return None
    cause = _short(found)
    help_ = _help_for(cause, found) if cause else _FASTER
    pressed = found.bottleneck
    if pressed.overloaded and pressed.served_per_s > 0:
        needed = -(-found.replicas * pressed.arrivals_per_s // pressed.served_per_s)
        help_ += f"; or about {needed:.0f} replicas instead of {found.replicas}"
    unknown = cause == "prompts" and not found.policies.prefix_cache and found.prefix_advice
    return f"{help_}. {unknown}" if unknown else f"{help_}."


_FASTER = (
    "fewer sequences in a batch or a smaller token budget (TPOT), a faster device, tensor "
    "parallelism or smaller formats"
)


def _help_for(cause: QueueCause, found: VerdictFacts) -> str:
    policies = found.policies
    if cause == "memory" and policies.kv == "contiguous":
        return "paged KV memory, which reserves only what is used"
    if cause in ("batch", "filling"):
        return "continuous batching, in which requests join and leave at every step"
    return {
        "memory": "more KV memory: a larger device, smaller formats of weights or KV",
        "places": f"more sequences in a batch than {policies.max_seqs}",
        "prompts": f"a larger token budget than {policies.token_budget}{_cache(found)} or a device "
        "of more FLOP/s",
        "step": _FASTER,
    }[cause]


def _cache(found: VerdictFacts) -> str:
    """Return the advice of a prefix cache where there is none and one could hit."""
    is_help = not found.policies.prefix_cache and found.prefix_advice is None
    return ", a prefix cache (prompts have beginnings in common)," if is_help else ""


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
