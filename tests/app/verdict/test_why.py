"""Each wrong part of a prediction is named, and nothing is left."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from servetwin.app.calibration.calibrator import ServerLog
from servetwin.app.reports.verdict import waterfall_lines, waterfall_sentences
from servetwin.app.verdict.measured_facts import measured_facts
from servetwin.app.verdict.why import (
    WHY,
    Cause,
    Hypothesis,
    Waterfall,
    explain_error,
    read_waterfall,
)
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.sequence import Sequence
from servetwin.sim.core.simulate import simulate
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.records.metrics import LATENCIES, derive
from servetwin.sim.records.run import Run, RunError, save_files
from servetwin.sim.step_times.profile import load_profile
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace

_LOADED = load_profile("base-cpu").scaled(0.3)
_STEPS = _LOADED.layouts["paged"].model_copy(update={"noise": [1.0]})
PROFILE = _LOADED.model_copy(update={"layouts": {"paged": _STEPS}})
POLICIES = PolicyConfig(max_seqs=8, kv_tokens=4096, batching="chunked", token_budget=128)
SCENARIO = Scenario(POLICIES, PROFILE)
TRACE = Trace(
    tuple(
        Request(
            f"r{i}", 0.055 * i, 160, 8 + 37 * i % 50,
            prefix_block_ids=(*range(6), *range(100 * i, 100 * i + 4)), block_tokens=16,
        )
        for i in range(49)
    ),
    "made",
)  # fmt: skip
"""Too few requests for a ranking of settings, which takes seconds."""
CLOCK_ZERO_S = 12.5
"""The server's clock when that of the load test is 0."""


def served(
    trace: Trace = TRACE, scenario: Scenario = SCENARIO, late_s: float = 0.0
) -> tuple[Run, ServerLog]:
    """A load test of a simulated server, with its step log; every second request is late."""
    lag_s = {one.request_id: late_s * (at % 2) for at, one in enumerate(trace)}
    sent = sorted(
        (replace(one, arrival_s=one.arrival_s + lag_s[one.request_id]) for one in trace),
        key=lambda one: one.arrival_s,
    )
    layout, api = scenario.profile.step_time("paged"), scenario.profile.api.model()
    scheduler = build_scheduler(scenario.policies)
    run = simulate(sent, scheduler, layout.model(), api=api, keep_records=True)
    rows = run.requests
    columns = zip(rows["sent_s"].tolist(), rows["prompt_tokens"].tolist(), strict=True)
    received_s = [at_s + api.request_in_s(prompt) + CLOCK_ZERO_S for at_s, prompt in columns]
    rows["scheduled_s"] -= rows["request_id"].map(lag_s)
    rows["response_id"] = "engine-" + rows["request_id"]
    names = zip(rows["response_id"], received_s, strict=True)
    arrivals = [build_arrival(name, at_s) for name, at_s in names]
    steps = [
        replace(
            step,
            now_s=step.now_s + CLOCK_ZERO_S,
            entries=[
                (f"engine-{name}", start, tokens, padding)
                for name, start, tokens, padding in step.entries
            ],
            hits=[(f"engine-{name}", cached) for name, cached in step.hits],
        )
        for step in run.records
    ]
    measured = Run(
        "loadtest", derive(rows), run.steps, {"trace": "made"},
        meta={"clock_zero_perf_counter_s": 100.0},
    )  # fmt: skip
    return measured, ServerLog(100.0 - CLOCK_ZERO_S, arrivals, steps)


def build_arrival(name: str, at_s: float) -> Sequence:
    return Sequence(name, at_s, 160, 1)


def explained(scenario: Scenario, trace: Trace, run: Run, log: ServerLog | None) -> Waterfall:
    predicted = run_once(trace, scenario).requests
    means = {name: float(predicted[name].mean()) for name in LATENCIES}
    return explain_error(means, scenario, measured_facts(run, trace, log))


SLOW_API = PROFILE.model_copy(update={"api": PROFILE.api.model_copy(update={"request_s": 0.5})})
SLOW_CHUNKS = PROFILE.model_copy(update={"api": PROFILE.api.model_copy(update={"chunk_s": 0.2})})
SHORTER = replace(
    TRACE, requests=tuple(replace(one, output_tokens=1 + one.output_tokens // 2) for one in TRACE)
)
CACHED = replace(POLICIES, prefix_cache=True)
SHORTEST_FIRST = replace(POLICIES, queue_order="sjf")


@pytest.mark.parametrize(
    ("predicted", "truth", "cause"),
    [
        ({}, {}, None),
        ({"scenario": Scenario(POLICIES, PROFILE.scaled(1.2))}, {}, "step times"),
        ({}, {"late_s": 0.4}, "send times"),
        ({}, {"trace": SHORTER}, "lengths"),
        ({"scenario": Scenario(POLICIES, SLOW_API)}, {}, "way to the scheduler"),
        ({"scenario": Scenario(POLICIES, SLOW_CHUNKS)}, {}, "way to the client"),
        ({}, {"scenario": Scenario(CACHED, PROFILE)}, "prefix hits"),
        ({"scenario": Scenario(CACHED, PROFILE)}, {}, "prefix hits"),
        ({}, {"scenario": Scenario(SHORTEST_FIRST, PROFILE)}, "admission order"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_the_part_that_is_wrong_is_named_and_nothing_is_left(
    predicted: dict[str, Scenario], truth: dict[str, object], cause: str | None
) -> None:
    run, log = served(**truth)  # type: ignore[arg-type]
    found = explained(predicted.get("scenario", SCENARIO), TRACE, run, log)
    effects = {one.name: effect["e2e_s"] for one, effect in found.effects() if effect}
    way_in_ms = 1e3 * PROFILE.api.model().request_in_s(prompt_tokens=160)
    assert f"mean {way_in_ms:.3g} ms" in [one.note for one in found.causes]
    assert all(abs(error) < 1e-6 for error in found.left.values())
    assert found.predicted["e2e_s"] == pytest.approx(sum(effects.values()) + found.left["e2e_s"])
    if cause is None:
        assert all(abs(effect) < 1e-3 for effect in effects.values())
    else:
        assert abs(found.predicted["e2e_s"]) > 0.02
        assert effects[cause] == pytest.approx(found.predicted["e2e_s"], rel=0.1)


def test_what_was_not_measured_is_named() -> None:
    run, _ = served(TRACE, Scenario(CACHED, PROFILE))
    run.requests["cached_tokens"] = 0
    run.requests["queue_s"] = float("nan")
    found = explained(Scenario(CACHED, PROFILE.scaled(1.2)), TRACE, run, None)
    unknown = {one.name: one.note for one in found.causes if one.errors is None}
    assert unknown == {
        "way to the scheduler": "the server's log is not known",
        "prefix hits": "no hits were recorded",
        "admission order": "not recorded",
        "settings": "49 answered requests are too few to tell; at least 50 are needed",
    }
    assert found.left == found.predicted
    assert waterfall_sentences(found)[-1].startswith(
        "Not measured, so part of what is left: way to the scheduler (the server's log is not"
    )


def test_a_server_whose_victims_have_priorities_keeps_its_order() -> None:
    policies = replace(POLICIES, victim="lowest-priority", queue_order="priority")
    run, log = served(scenario=Scenario(policies, PROFILE))
    found = explained(Scenario(policies, PROFILE), TRACE, run, log)
    (order,) = (one for one in found.causes if one.name == "admission order")
    assert (order.errors, order.note) == (
        None, "cannot be imposed where victims are chosen by priority",
    )  # fmt: skip


def test_a_log_of_another_run_is_refused() -> None:
    run, log = served()
    with pytest.raises(RunError, match="the step log has no step of this load test"):
        measured_facts(run, TRACE, replace(log, steps=[]))
    run.requests["status"] = "failed"
    with pytest.raises(RunError, match="no request of the measured run was answered"):
        measured_facts(run, TRACE)


MADE = Waterfall(
    {"ttft_s": -0.27, "e2e_s": 0.004},
    (
        Cause("send times", {"ttft_s": -0.26, "e2e_s": 0.004}, "p99 3 ms late"),
        Cause("prefix hits", None, "no hits were recorded"),
        Cause("step times", {"ttft_s": 0.01, "e2e_s": 0.004}, "12 logged steps"),
    ),
)


def test_the_table_and_the_words() -> None:
    assert waterfall_lines(MADE)[2:] == [
        "error of the mean, per cent    TTFT    E2E",
        "predicted                    -27.00  +0.40",
        "  send times                  -1.00  +0.00  p99 3 ms late",
        "  prefix hits                     -      -  no hits were recorded",
        "  step times                 -27.00  +0.00  12 logged steps",
        "left                          +1.00  +0.40",
        "",
        "TTFT is -27.0 % off: step times -27.0, send times -1.0; +1.0 is left.",
        "E2E is +0.4 % off: no part matters; +0.4 is left.",
        "Not measured, so part of what is left: prefix hits (no hits were recorded).",
    ]


RANKED = replace(
    MADE,
    hypotheses=(
        Hypothesis("token budget", 0.7, {"ttft_s": 0.01, "tpot_s": 0.02}, 256, 48, 44, 56),
        Hypothesis(
            "prefix cache", 0.28, {"ttft_s": 0.02, "tpot_s": 0.03}, True, False, False, False
        ),
        Hypothesis("as stated", 0.02, {"ttft_s": 0.4, "tpot_s": 0.3}),
    ),
)


def test_settings_that_explain_alike_are_both_named() -> None:
    assert waterfall_lines(RANKED)[8:14] == [
        "",
        "Settings that may be stated wrongly, each fitted alone to what was measured",
        "setting       stated  estimate         90 %  share  TTFT left  TPOT left",
        "token budget     256        48   (44 to 56)    70%        1.0        2.0",
        "prefix cache      on       off                 28%        2.0        3.0",
        "as stated                                       2%       40.0       30.0",
    ]
    assert (
        "These explain the measurements alike, one of them is enough: token budget 48 (44 to 56), "
        "not 256; prefix cache off, not on."
    ) in waterfall_sentences(RANKED)
    alone = replace(RANKED, hypotheses=RANKED.hypotheses[:1])
    assert "One setting explains the measurements best: token budget 48 (44 to 56), not 256." in (
        waterfall_sentences(alone)
    )
    likely = replace(RANKED.hypotheses[2], share=0.05)
    assert "No setting explains the measurements clearly better than as stated." in (
        waterfall_sentences(replace(RANKED, hypotheses=(*RANKED.hypotheses[:2], likely)))
    )


def test_a_waterfall_is_kept(tmp_path: Path) -> None:
    assert read_waterfall(tmp_path) is None
    save_files(tmp_path, RANKED.files)
    assert read_waterfall(tmp_path) == RANKED
    assert json.loads((tmp_path / WHY).read_text())["left"] == {"ttft_s": 0.01, "e2e_s": 0.004}
    (tmp_path / WHY).write_text('{"causes": [{}]}')
    with pytest.raises(RunError, match=r"why\.json: not a readable waterfall"):
        read_waterfall(tmp_path)
