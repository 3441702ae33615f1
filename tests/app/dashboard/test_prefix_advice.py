"""What is said of a prefix cache: by generated prompts, by traces with ids and without."""

import pytest

from servetwin.app.dashboard import simulations
from servetwin.app.dashboard.scenario import uploads
from servetwin.app.dashboard.scenario.uploads import Upload
from servetwin.app.dashboard.scenario_words import only_prefix_cache_differs, prefix_advice
from servetwin.app.dashboard.simulations import SimulatedScenario
from servetwin.app.scenario.files.scenario_file import parse_scenario
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace


def trace(*, ids: bool = False, sessions: bool = False) -> Trace:
    requests = (
        Request(
            f"r{n}", n / 10, 160 + 96 * n, 32,
            prefix_block_ids=(n,) if ids else (), block_tokens=16 if ids else None,
            session_id="s" if sessions else None,
        )
        for n in range(6)
    )  # fmt: skip
    return Trace(tuple(requests), "own.csv")


@pytest.fixture
def uploaded(monkeypatch: pytest.MonkeyPatch) -> dict[str, Upload]:
    found: dict[str, Upload] = {}
    monkeypatch.setattr(uploads, "uploads", lambda: found)
    return found


def simulated(
    workload: str = "source: own.csv, rate_per_s: null", more: str = ""
) -> SimulatedScenario:
    return simulations.simulate(parse_scenario(f"workload: {{{workload}}}\n{more}", "t"))


def advice_of(found: SimulatedScenario) -> str | None:
    return prefix_advice(found.file.workload, found.trace)


def test_generated_prompts_need_a_shared_prefix() -> None:
    advice = advice_of(simulated("requests: 20"))
    assert advice
    assert "nothing in common" in advice
    assert "**Shared prefix, tokens**" in advice
    assert advice_of(simulated("requests: 20, shared_prefix_tokens: 64")) is None


@pytest.mark.parametrize("sessions", [False, True])
def test_a_trace_without_ids_cannot_tell_and_what_would_is_offered(
    uploaded: dict[str, Upload], sessions: bool
) -> None:
    uploaded["own.csv"] = Upload(trace(sessions=sessions), f"digest {sessions}")
    advice = advice_of(simulated())
    assert advice
    assert "the trace cannot tell: no request has prefix ids" in advice
    assert "`prefix_block_ids`" in advice
    assert "**Assumed shared prefix**" in advice
    assert ("**Prompts hold their session**" in advice) is sessions


@pytest.mark.parametrize("assumed", ["prefix_share: 0.5", "conversations: true"])
def test_what_is_assumed_fills_in_what_a_cache_hits(
    uploaded: dict[str, Upload], assumed: str
) -> None:
    uploaded["own.csv"] = Upload(trace(sessions=True), f"digest {assumed}")
    cache = "policies: {prefix_cache: true}"
    found = simulated(f"source: own.csv, rate_per_s: null, {assumed}", cache)
    assert advice_of(found) is None
    assert found.summary["prefix_hit_rate_tokens"] > 0.1
    assert simulated(more=cache).summary["prefix_hit_rate_tokens"] == 0


def test_ids_of_which_none_recur_are_an_answer(uploaded: dict[str, Upload]) -> None:
    uploaded["own.csv"] = Upload(trace(ids=True), "digest of ids")
    assert advice_of(simulated()) == (
        "A prefix cache cannot hit on this trace: no two prompts begin alike."
    )


@pytest.mark.parametrize(
    ("workload", "policies", "only"),
    [
        ("requests: 20", "policies: {prefix_cache: true}", True),
        ("requests: 20", "policies: {prefix_cache: true, max_seqs: 4}", False),
        ("requests: 20", "", False),
        ("requests: 20", "policies: {prefix_cache: true}\nslo: {ttft_ms: 1}", False),
        ("requests: 20", "policies: {prefix_cache: true}\ncluster: {replicas: 2}", False),
        ("requests: 20, shared_prefix_tokens: 64", "policies: {prefix_cache: true}", False),
    ],
)
def test_only_a_cache_that_cannot_hit_makes_a_difference_unknown(
    workload: str, policies: str, only: bool
) -> None:
    before, after = simulated(workload), simulated(workload, policies)
    assert only_prefix_cache_differs(before, after) is only
