"""An explanation in words and in its file; the facts of a measured run."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from servetwin.app.calibration.calibrator import ServerLog
from servetwin.app.reports.verdict import explanation_lines, explanation_sentences
from servetwin.app.verdict.measured_facts import measured_facts
from servetwin.app.verdict.why.explanation import WHY, Explanation, explain_error, read_explanation
from servetwin.app.verdict.why.hypotheses import Hypothesis
from servetwin.app.verdict.why.settings import kv_tokens
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.sim.core.simulate import simulate
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.records.metrics import derive
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
    rows["scheduled_s"] -= rows["request_id"].map(lag_s)
    rows["response_id"] = "engine-" + rows["request_id"]
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
    return measured, ServerLog(100.0 - CLOCK_ZERO_S, steps)


def test_too_few_requests_rank_nothing_and_say_what_was_sent() -> None:
    run, log = served(late_s=0.4)
    why = explain_error(SCENARIO, measured_facts(run, TRACE, log))
    assert why.hypotheses == ()
    assert why.notes == (
        "requests were sent late by 400 ms (p99)",
        "0 of 49 requests had other lengths than in the trace",
        "49 answered requests are too few to tell which setting is wrong; at least 50 are needed",
    )
    shorter = replace(
        TRACE,
        requests=tuple(replace(one, output_tokens=1 + one.output_tokens // 2) for one in TRACE),
    )
    run, log = served(shorter)
    assert "49 of 49" in explain_error(SCENARIO, measured_facts(run, TRACE, log)).notes[1]


def test_a_log_of_another_run_is_refused() -> None:
    run, log = served()
    with pytest.raises(RunError, match="the step log has no step of this load test"):
        measured_facts(run, TRACE, replace(log, steps=[]))
    run.requests["status"] = "failed"
    with pytest.raises(RunError, match="no request of the measured run was answered"):
        measured_facts(run, TRACE)


RANKED = Explanation(
    (
        Hypothesis("token budget", 0.7, {"ttft_s": 0.01, "tpot_s": 0.02}, 256, 48, 44, 56),
        Hypothesis(
            "prefix cache", 0.28, {"ttft_s": 0.02, "tpot_s": 0.03}, True, False, False, False
        ),
        Hypothesis("as stated", 0.02, {"ttft_s": 0.4, "tpot_s": 0.3}),
    ),
    ("requests were sent late by 3 ms (p99)",),
)


def test_settings_that_explain_alike_are_both_named() -> None:
    assert explanation_lines(RANKED)[:6] == [
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
    ) in explanation_sentences(RANKED)
    alone = replace(RANKED, hypotheses=RANKED.hypotheses[:1])
    assert "One setting explains the measurements best: token budget 48 (44 to 56), not 256." in (
        explanation_sentences(alone)
    )
    likely = replace(RANKED.hypotheses[2], share=0.05)
    assert "No setting explains the measurements clearly better than as stated." in (
        explanation_sentences(replace(RANKED, hypotheses=(*RANKED.hypotheses[:2], likely)))
    )


def test_an_explanation_is_kept(tmp_path: Path) -> None:
    assert read_explanation(tmp_path) is None
    save_files(tmp_path, RANKED.files)
    assert read_explanation(tmp_path) == RANKED
    (tmp_path / WHY).write_text('{"hypotheses": [{}]}')
    with pytest.raises(RunError, match=r"why\.json: not a readable explanation"):
        read_explanation(tmp_path)


def test_the_kv_memory_is_what_is_held_over_the_share_that_is_used() -> None:
    answered = pd.DataFrame(
        {"first_token_s": [0.0], "last_token_s": [10.0], "prompt_tokens": [100],
         "output_tokens": [20]}
    )  # fmt: skip
    server = pd.DataFrame({"at_s": [5.0, 8.0, 12.0], "kv_usage": [0.5, 0.25, 0.5], "running": 1})
    facts: Any = SimpleNamespace(answered=answered, server=server, requests=())
    assert kv_tokens(facts).tolist() == [110 / 0.5, 116 / 0.25]
