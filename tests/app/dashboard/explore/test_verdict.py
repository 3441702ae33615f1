"""The verdict on a scenario: what it says, and the facts that it is made of."""

from dataclasses import replace
from typing import Any

import pytest

from servetwin.app.dashboard.explore.verdict import VerdictFacts, facts, verdict_text
from servetwin.app.dashboard.simulations import simulate
from servetwin.app.scenario.files.scenario_file import parse_scenario
from servetwin.policies.config import PolicyConfig
from servetwin.sim.experiments.predict import Interval
from servetwin.sim.explain.bottleneck import Bottleneck

HELP = "**What would help:** "
CALM = Bottleneck(10.0, 0.0, 0.001, "prompts", 1.0, 0.5, 31, 0.12)


POLICIES = PolicyConfig(max_seqs=64, token_budget=512)


FINE = VerdictFacts("TTFT ≤ 500 ms", 0.999, None, {"TTFT": 0.001}, 0.0, 2.0, 1, POLICIES, CALM)


def under(cause: Any, **policies: Any) -> VerdictFacts:
    """Overloaded, with most waiting for ``cause``."""
    pressed = Bottleneck(15.0, 5.0, 30.0, cause, 0.9, 1.0, 64, 0.98)
    bad = replace(FINE, attainment=0.2, missed={"TTFT": 0.8}, bottleneck=pressed)
    return replace(bad, policies=PolicyConfig(**policies) if policies else POLICIES)


@pytest.mark.parametrize(
    ("found", "kind", "words"),
    [
        (FINE, "holds", ["Meets the SLO (TTFT ≤ 500 ms)", "99.9 %", "are required", "No bott"]),
        (FINE, "holds", ["run 50 %", "31 of 64 places", "12 % of the KV memory"]),
        (
            replace(FINE, attainment=0.9, missed={"TTFT": 0.1}), "fails",
            ["; 10 % miss the TTFT limit.", "step time"],
        ),
        (replace(FINE, interval=Interval(0.995, 0.98, 1.0)), "unsure", ["98 % to 100 %", "May or"]),
        (replace(FINE, interval=Interval(0.995, 0.99, 1.0)), "holds", ["90 % interval 99 %"]),
        (replace(FINE, interval=Interval(0.9, 0.8, 0.98)), "fails", ["Misses the SLO"]),
        (replace(FINE, refused=0.25, attainment=0.75), "fails", ["25 % are refused"]),
        (replace(FINE, limits="", attainment=None), "none", ["No SLO is set."]),
        (
            under("places"), "fails",
            ["Overloaded: the queue grows.", "15 requests arrive per second and about 10 are",
             "50 % too many", "places in the batch", "90 % of the waiting time", "than 64",
             "about 2 replicas instead of 1"],
        ),
        (under("memory"), "fails", ["KV memory** is full", "more KV memory", "98 % of the KV"]),
        (under("memory", kv="contiguous"), "fails", ["paged KV memory"]),
        (
            under("prompts"), "fails",
            ["prompts** fill", "larger token budget than 512, a prefix cache (prompts have"],
        ),
        (
            replace(under("prompts"), prefix_advice="The trace cannot tell."), "fails",
            ["budget than 512 or a device of more FLOP/s; or about 2 replicas instead of 1. The"],
        ),
        (
            replace(under("prompts", prefix_cache=True), prefix_advice="The trace."), "fails",
            ["larger token budget than 256 or a device"],
        ),
        (replace(FINE, attainment=0.96, wanted=0.95), "holds", ["96 %", "95 % are required"]),
        (replace(FINE, attainment=0.96, wanted=0.97), "fails", ["97 % are required"]),
        (under("batch"), "fails", ["static batch", "continuous batching"]),
        (under("filling"), "fails", ["until it is full", "continuous batching"]),
        (replace(under("places"), limits="", attainment=None), "fails", ["Overloaded", "No SLO"]),
    ],
)  # fmt: skip
def test_the_verdict_says_what_and_why(found: VerdictFacts, kind: str, words: list[str]) -> None:
    text = verdict_text(found)
    assert found.kind == kind
    for said in words:
        assert said in text
    assert kind != "holds" or HELP not in text


@pytest.mark.parametrize("policies", [{}, {"prefix_cache": True}])
def test_a_prefix_cache_that_cannot_hit_is_not_recommended(policies: dict[str, bool]) -> None:
    found = replace(under("prompts", **policies), prefix_advice="The trace cannot tell.")
    helps = verdict_text(found).partition(HELP)[2]
    assert helps
    assert "prefix cache" not in helps
    assert ("The trace cannot tell." in helps) is not bool(policies)


def test_a_share_of_requests_is_not_the_size_of_a_miss() -> None:
    bad = replace(FINE, attainment=0.1, missed={"TTFT": 0.894, "TPOT": 0.02}, refused=0.05)
    said = verdict_text(bad)
    assert "; 89.4 % miss the TTFT limit, 2 % miss the TPOT limit, 5 % are refused." in said
    assert " by 89.4 %" not in said


def test_a_server_whose_steps_never_end_is_not_called_idle_and_busy_at_once() -> None:
    always = replace(CALM, busy_share=1.0)
    said = verdict_text(replace(FINE, bottleneck=always))
    assert "\n\n**No bottleneck:** hardly any request waits. The GPU is almost always busy" in said
    assert "new requests join the next batch immediately. Steps run 100 % of the time;" in said
    half = verdict_text(FINE)
    assert "almost always" not in half
    full = verdict_text(replace(FINE, bottleneck=replace(always, running_peak=64)))
    assert "almost always" not in full


@pytest.mark.parametrize("ends", [(1.0, 1.0), (0.995, 0.995)])
def test_a_share_that_is_the_same_in_every_draw_has_no_interval(ends: tuple[float, float]) -> None:
    found = replace(FINE, interval=Interval(ends[0], *ends))
    assert found.kind == "holds"
    assert "interval" not in verdict_text(found)


def test_limits_from_ten_seconds_on_are_in_seconds() -> None:
    text = "workload: {requests: 10}\nslo: {ttft_ms: 9999, e2e_ms: 20000}"
    found = facts(simulate(parse_scenario(text, "t")))
    assert "TTFT ≤ 9999 ms" in found.limits
    assert "E2E ≤ 20 s" in found.limits


def test_facts_are_those_of_the_run() -> None:
    found = facts(simulate(parse_scenario("workload: {requests: 50, rate_per_s: 5}", "t")))
    assert found.limits == "TTFT ≤ 500 ms, TPOT ≤ 50 ms"
    assert found.attainment == 1.0
    assert found.kind == "holds"


def test_all_refused_is_a_verdict_too() -> None:
    text = "workload: {requests: 20, prompt_tokens: 4000, prompt_cv: 0.05}\npolicies: {kv_tokens: "
    found = facts(simulate(parse_scenario(f"{text}320}}", "t")))
    assert (found.refused, found.kind) == (1.0, "fails")
    assert "100 % are refused" in verdict_text(found)
