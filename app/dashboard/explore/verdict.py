"""The verdict on a scenario: whether it meets its SLO, its bottleneck, and what would help."""

from dataclasses import dataclass
from typing import Literal

from servetwin.app.dashboard.formatting import page_text
from servetwin.app.dashboard.scenario_words import prefix_advice
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
from servetwin.sim.records.metrics import LATENCIES, duration

_WORTH_NAMING = 0.001
# Share of the time with a step running from which on the server looks saturated.
_ALWAYS = 0.9
_LABELS = dict(zip(LATENCIES, ("TTFT", "TPOT", "E2E"), strict=True))

Kind = Literal["holds", "unsure", "fails", "none"]

_CAUSES: dict[QueueCause, dict[str, str]] = asset_table("words.yaml")["causes"]
_HEADLINES: dict[Kind, str] = asset_table("words.yaml")["slo_verdicts"]
_HELPS: dict[str, str] = asset_table("words.yaml")["helps"]
_BUSY = " The GPU is almost always busy, and new requests join the next batch immediately."


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

    @property
    def kind(self) -> Kind:
        """Whether the SLO holds."""
        if self.bottleneck.overloaded:
            return "fails"
        if self.attainment is None:
            return "none"
        low = self.interval.low if self.interval else self.attainment
        high = self.interval.high if self.interval else self.attainment
        return "holds" if low >= self.wanted else "fails" if high < self.wanted else "unsure"

    @property
    def cause(self) -> QueueCause | None:
        """What waiting requests wait for, where waiting matters."""
        waits = self.bottleneck.waited_s > WAIT_WORTH_NAMING * self.mean_e2e_s
        return self.bottleneck.cause if waits or self.bottleneck.overloaded else None

    @property
    def is_too_slow(self) -> bool:
        """Whether too many requests miss a limit."""
        return any(share > 1 - self.wanted for share in self.missed.values())


def facts(outcome: SimulatedScenario) -> VerdictFacts:
    """Return the facts of one simulation, without the interval over its replications."""
    policies, slo = outcome.scenario.policies, outcome.file.slo.slo()
    requests = outcome.run.requests
    pressed = find_bottleneck(outcome.run, policies.as_dict(), policies.kv_tokens)
    limits_s = {
        label: (name, limit_s)
        for name, label in _LABELS.items()
        if (limit_s := getattr(slo, name)) is not None
    }
    return VerdictFacts(
        limits=", ".join(f"{label} ≤ {duration(s)}" for label, (_, s) in limits_s.items()),
        attainment=outcome.summary["slo_attainment"] if limits_s else None,
        interval=None,
        missed={
            label: float((requests[name] > limit_s).mean())
            for label, (name, limit_s) in limits_s.items()
        },
        refused=float((requests["status"] == "refused").mean()),
        mean_e2e_s=outcome.summary["e2e_s"]["mean"] or 0.0,
        replicas=len(outcome.scenario.servers()),
        policies=policies,
        bottleneck=pressed,
        limiting=limiting_resource(outcome.run, pressed, policies.as_dict(), slo),
        wanted=outcome.file.slo.attainment,
        prefix_advice=prefix_advice(outcome.file.workload, outcome.trace),
    )


def verdict_text(facts: VerdictFacts) -> str:
    """Return the verdict on these facts, as Markdown: its headline first, then what explains it."""
    headline = _HEADLINES[facts.kind if facts.limits else "none"].format(facts.limits)
    if facts.bottleneck.overloaded:
        headline = f"Overloaded: the queue grows. {headline}"
    reason = " ".join(filter(None, [_attainment(facts), _load(facts.bottleneck)]))
    helps = _helps(facts)
    more = [f"**What would help:** {helps}"] if helps else []
    return "\n\n".join([f"**{headline}** {reason}", _bottleneck(facts), *more])


def _attainment(facts: VerdictFacts) -> str:
    if facts.attainment is None:
        return ""
    within = f"{_percent(facts.attainment)} of the requests meet it"
    if between := facts.interval and ends(facts.interval.low, facts.interval.high, _percent):
        within += f" (90 % interval {between[0]} to {between[1]})"
    missed = {f"miss the {label} limit": share for label, share in facts.missed.items()}
    reasons = [
        f"{_percent(share)} {what}"
        for what, share in {**missed, "are refused": facts.refused}.items()
        if share > _WORTH_NAMING
    ]
    reason = f"; {', '.join(reasons)}" if reasons else ""
    return f"{within}, {_percent(facts.wanted)} are required{reason}."


def _load(pressed: Bottleneck) -> str:
    if not pressed.overloaded:
        return ""
    served = pressed.served_per_s
    above = f", {_percent(pressed.arrivals_per_s / served - 1)} too many" if served > 0 else ""
    rates = {"arrivals": pressed.arrivals_per_s, "growth": pressed.growth_per_s}
    return page_text("verdict.load", served=max(0, served), above=above, **rates)


def _bottleneck(facts: VerdictFacts) -> str:
    pressed, places = facts.bottleneck, facts.policies.max_seqs
    peak = pressed.kv_peak_share
    memory = "" if peak is None else f" and {_percent(peak)} of the KV memory"
    running, busy = pressed.running_peak, _percent(pressed.busy_share)
    state = page_text("verdict.state", busy=busy, running=running, places=places, memory=memory)
    if facts.cause:
        why = f"{_CAUSES[facts.cause]['of_most']} during {_percent(pressed.cause_share)} of the"
        text = f"**Bottleneck:** {why} waiting time."
    elif facts.is_too_slow:
        text = "**Bottleneck:** the **step time** itself; hardly any request waits."
    else:
        always = pressed.busy_share >= _ALWAYS and pressed.running_peak < places
        return f"**No bottleneck:** hardly any request waits.{_BUSY if always else ''} {state}"
    if facts.limiting:
        text += f" Limiting resource: **{RESOURCES[facts.limiting.resource]}**."
    return f"{text} {state}"


def _helps(facts: VerdictFacts) -> str | None:
    cause, policies, pressed = facts.cause, facts.policies, facts.bottleneck
    if facts.kind == "holds" or not (cause or facts.is_too_slow):
        return None
    can_hit = not policies.prefix_cache and facts.prefix_advice is None
    kind = "contiguous" if cause == "memory" and policies.kv == "contiguous" else cause or "step"
    help_ = _HELPS[kind].format(
        policies=policies,
        cache=", a prefix cache (prompts have beginnings in common)," if can_hit else "",
    )
    if pressed.overloaded and pressed.served_per_s > 0:
        needed = -(-facts.replicas * pressed.arrivals_per_s // pressed.served_per_s)
        help_ += f"; or about {needed:.0f} replicas instead of {facts.replicas}"
    unknown = cause == "prompts" and not policies.prefix_cache and facts.prefix_advice
    return f"{help_}. {unknown}" if unknown else f"{help_}."


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
