"""Where the time of a request went: from a run's columns, compared with its step records."""

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servetwin.policies.batch import BatchShape
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.step_record import StepRecord
from servetwin.sim.core.cluster import simulate_cluster
from servetwin.sim.core.kv_transfer import KVLink
from servetwin.sim.core.pools import Pool
from servetwin.sim.core.recorder import Recorder
from servetwin.sim.core.simulate import simulate
from servetwin.sim.explain.explain import PARTS, Explainer, Explanation, servers_of
from servetwin.sim.records.columns import stamps_of
from servetwin.sim.records.metrics import derive
from servetwin.sim.records.run import HANDOVER_COLUMNS, PAUSE_COLUMNS, Run, RunError
from servetwin.sim.step_times.step_time import ApiLatency, LinearStepTime
from servetwin.workloads.request import Request
from tests.support.checked import request
from tests.support.effort import FULL, examples
from tests.support.explained_runs import (
    CONFIG,
    SERVER_S,
    STEPS,
    STORY,
    STORY_S,
    random_requests,
    records_of,
    simulated,
    write_profile,
)


def explained(run: Run, request_id: str) -> Explanation:
    return Explainer(run).explain(request_id)


def parts(**seconds: float) -> Any:
    return pytest.approx({**dict.fromkeys(PARTS, 0.0), **seconds}, abs=1e-9)


# --- stories


@pytest.mark.parametrize("profiled", [True, False])
def test_a_prompt_stalls_whoever_decodes_beside_it(tmp_path: Path, profiled: bool) -> None:
    profile = write_profile(tmp_path, STORY_S) if profiled else ""
    run = simulated(STORY, CONFIG, STORY_S, profile)
    a, b = explained(run, "a"), explained(run, "b")
    assert a.parts_s == parts(prefill=3, decode=4, stalled=2)
    assert b.parts_s == parts(queue=1.5, prefill=3, decode=1)
    assert (a.e2e_s, b.e2e_s, b.waited_s, b.cause) == (9, 5.5, 1.5, "step")
    assert (len(a.notes), b.notes) == (0 if profiled else 1, ())
    assert b.neighbours is not None
    assert (b.neighbours.running, b.neighbours.waiting, b.neighbours.mean_batch) == (1, 0, 2)


def test_prompts_alone_stall_the_decodes_for_their_whole_step(tmp_path: Path) -> None:
    config = replace(CONFIG, batching="prefill-first")
    run = simulated(STORY, config, STORY_S, write_profile(tmp_path, STORY_S))
    assert explained(run, "a").parts_s == parts(prefill=3, decode=4, stalled=3)
    assert explained(run, "b").parts_s == parts(queue=1.5, prefill=3, decode=1)


def test_without_a_model_and_without_a_quiet_step_stalls_are_said_to_be_unknown() -> None:
    requests = [request("a", 0.0, 4, 2), request("b", 1.0, 4, 1)]
    found = explained(simulated(requests, CONFIG, STORY_S), "a")
    assert found.parts_s == parts(prefill=3, decode=3)
    assert "stalls are counted as decode" in found.notes[0]


def test_the_api_takes_its_time_before_and_after(tmp_path: Path) -> None:
    api = ApiLatency(request_s=0.25, chunk_s=0.125)
    run = simulate(STORY, build_scheduler(CONFIG), LinearStepTime.of(STORY_S), api=api)
    run.scenario = {"policies": CONFIG.as_dict(), "profile": write_profile(tmp_path, STORY_S, api)}
    assert explained(run, "a").parts_s == parts(prefill=3, decode=4, stalled=2, api=0.375)
    assert explained(run, "b").parts_s == parts(queue=1.5, prefill=3, decode=1, api=0.375)


def test_preempted_lasts_until_what_was_lost_is_computed_again(tmp_path: Path) -> None:
    config = PolicyConfig(kv_tokens=16, block_tokens=4, max_seqs=4, token_budget=64)
    requests = [request("a", 0.0, 4, 9), request("b", 0.0, 4, 9)]
    run = simulated(requests, config, STORY_S, write_profile(tmp_path, STORY_S))
    # Both prompts take [0, 5]; four decodes each fill the blocks by 9. b gives way: a decodes
    # alone to 13, b is computed again in [13, 16], and has its last three tokens by 19.
    assert explained(run, "a").parts_s == parts(prefill=5, decode=8)
    b = explained(run, "b")
    assert b.parts_s == parts(prefill=5, decode=4 + 3, preempted=7)
    assert b.preemptions == 1


def test_a_handover_is_transfer_and_a_second_queue() -> None:
    steps = pd.DataFrame(
        [
            STEPS | {"start_s": 0.5, "end_s": 2.0, "prefill_chunks": 1, "rows": 8},
            STEPS | {"start_s": 1.0, "end_s": 4.0, "decode_sequences": 3, "replica": 1},
            STEPS | {"start_s": 4.0, "end_s": 6.0, "steps": 2, "decode_sequences": 4, "replica": 1},
        ]
    )
    stamps = pd.DataFrame(
        {
            "request_id": ["x"], "status": "finished", "scheduled_s": 0.0, "sent_s": 0.0,
            "first_token_s": 2.0, "last_token_s": 6.0, "prompt_tokens": 8, "output_tokens": 3,
            "cached_tokens": 0, "preemptions": 0, "queue_s": 0.5, "replica": 1, "error": "",
        }
    )  # fmt: skip
    handovers = pd.DataFrame(stamps_of([(0, 2.0, 3.25, 4.0)], HANDOVER_COLUMNS))
    run = Run("simulation", derive(stamps), steps, {}, handovers=handovers)
    found = explained(run, "x")
    assert found.parts_s == parts(queue=0.5 + 0.75, prefill=1.5, transfer=1.25, decode=2)
    assert found.neighbours is not None
    assert found.neighbours.mean_batch == 4


def test_a_load_test_is_explained_as_far_as_a_client_sees() -> None:
    stamps = pd.DataFrame(
        {
            "request_id": ["x", "y"], "status": ["finished", "failed"], "scheduled_s": [1.0, 2.0],
            "sent_s": [1.25, 2.0], "first_token_s": [2.0, np.nan], "last_token_s": [5.0, np.nan],
            "prompt_tokens": 8, "output_tokens": [3, 0], "cached_tokens": 0, "preemptions": 0,
            "queue_s": np.nan, "replica": 0, "error": [None, "timeout"],
            "chunk_s": [np.array([2.0, 4.5, 5.0]), np.array([])],
        }
    )  # fmt: skip
    run = Run("loadtest", derive(stamps), pd.DataFrame(), {})
    found = explained(run, "x")
    assert found.parts_s == {"send_lag": 0.25, "first_token": 0.75, "streaming": 3.0}
    assert "keeps no steps" in found.notes[0]
    assert "2.500 s, before chunk 2 of 3" in found.notes[1]
    failed = explained(run, "y")
    assert (failed.status, failed.error, failed.parts_s, failed.e2e_s) == (
        "failed", "timeout", {}, None,
    )  # fmt: skip


def test_a_refused_request_has_no_parts_but_a_reason() -> None:
    requests = [request("long", 0.0, 5_000, 2), request("b", 0.0, 4, 2)]
    found = explained(simulated(requests, CONFIG, STORY_S), "long")
    assert (found.status, found.parts_s) == ("refused", {})
    assert "too_long" in found.error


# --- against the step records


def exact_parts(
    records: list[StepRecord], requests: list[Request], model: LinearStepTime
) -> dict[str, dict[str, float]]:
    """What the parts are, from every entry of every step; knows no columns and no pauses."""
    due = {one.request_id: one for one in requests}
    spent: dict[str, dict[str, float]] = {name: defaultdict(float) for name in due}
    place = dict.fromkeys(due, "queue")
    since_s = {name: one.arrival_s for name, one in due.items()}
    made = dict.fromkeys(due, 0)
    for record in records:
        end_s, shape = record.now_s + record.duration_s, record.shape()
        alone_s = record.duration_s
        if shape.prefill_chunks:
            decodes = BatchShape(shape.decode_sequences, shape.decode_context_tokens, 0)
            alone_s = float(model.seconds(decodes)[0]) if shape.decode_sequences else 0.0
        for name in record.preempted:
            spent[name]["prefill"] += record.now_s - since_s[name] if not made[name] else 0.0
            place[name], since_s[name] = "away", record.now_s
        decoding = {name for name in due if place[name] == "decode" and made[name]}
        for name in decoding:
            spent[name]["decode"] += min(alone_s, record.duration_s)
            spent[name]["stalled"] += record.duration_s - min(alone_s, record.duration_s)
        for name, start, tokens, _ in record.entries:
            if place[name] == "queue" or (place[name] == "away" and not made[name]):
                part = "queue" if place[name] == "queue" else "preempted"
                spent[name][part] += record.now_s - since_s[name]
                place[name], since_s[name] = "prefill", record.now_s
            if start + tokens == due[name].prompt_tokens + made[name]:
                made[name] += 1
                if name not in decoding:
                    part = "preempted" if place[name] == "away" else "prefill"
                    spent[name][part] += end_s - since_s[name]
                    place[name] = "decode"
                if made[name] == due[name].output_tokens:
                    place[name] = "done"
    return spent


@pytest.mark.parametrize("token_budget", [512, 64])
@pytest.mark.parametrize("batching", ["continuous", "chunked", "prefill-first", "insertion"])
@pytest.mark.slow
def test_the_parts_are_those_that_every_step_record_shows(
    tmp_path: Path, batching: str, token_budget: int
) -> None:
    config = replace(CONFIG, batching=batching, token_budget=token_budget, kv_tokens=1_024)
    requests = random_requests(seed=7, count=150 if FULL else 60, rate_per_s=30)
    run = simulated(requests, config, SERVER_S, write_profile(tmp_path, SERVER_S))
    records = records_of(requests, config, SERVER_S)
    exact = exact_parts(records, requests, LinearStepTime.of(SERVER_S))
    assert run.pauses.empty == (batching == "insertion")
    explainer = Explainer(run)
    step_s = max(record.duration_s for record in records)
    for one in requests:
        found = explainer.explain(one.request_id)
        # Whose chunks a step computed is not in the columns: a recompute that shares its steps
        # with other prompts may be taken to end one step too early.
        slack_s = step_s * found.preemptions if token_budget == 64 else 0.0
        for part in ("queue", "prefill", "decode", "stalled", "preempted"):
            part_slack_s = 0.0 if part in ("queue", "prefill") else slack_s
            difference_s = found.parts_s[part] - exact[one.request_id][part]
            assert abs(difference_s) <= part_slack_s + 1e-9, (one.request_id, part)


# --- laws


@pytest.mark.slow
@settings(max_examples=examples(15))
@given(
    seed=st.integers(0, 10_000),
    batching=st.sampled_from(["static", "insertion", "continuous", "prefill-first", "chunked"]),
    preemption=st.sampled_from(["recompute", "swap"]),
    kv_tokens=st.sampled_from([512, 4_096]),
    profiled=st.booleans(),
)
def test_parts_are_never_negative_and_sum_to_the_latency(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    batching: str,
    preemption: Any,
    kv_tokens: int,
    profiled: bool,
) -> None:
    config = replace(
        CONFIG, batching=batching, kv_tokens=kv_tokens, preemption=preemption,
        host_kv_tokens=4_096 if preemption == "swap" else 0,
    )  # fmt: skip
    profile = write_profile(tmp_path_factory.mktemp("p"), SERVER_S) if profiled else ""
    requests = random_requests(seed, 30, 40)
    run = simulated(requests, config, SERVER_S, profile)
    explainer = Explainer(run)
    for row, one in enumerate(requests):
        found = explainer.explain(one.request_id)
        assert (found.e2e_s is not None) == (found.status == "finished")
        if found.e2e_s is not None:
            assert min(found.parts_s.values()) >= 0
            assert sum(found.parts_s.values()) == pytest.approx(found.e2e_s, abs=1e-9)
            spans = explainer.spans.of(row)
            assert (spans[0].start_s, spans[-1].end_s) == (
                run.requests["scheduled_s"][row], run.requests["last_token_s"][row],
            )  # fmt: skip
            assert all(a.end_s == b.start_s for a, b in pairwise(spans))


def test_prefill_and_decode_pools_tell_all_that_an_explanation_needs() -> None:
    link, model = KVLink(latency_s=0.01, token_s=1e-5), LinearStepTime.of(SERVER_S)
    pools = [
        Pool(CONFIG, model, 2, "prefill"),
        Pool(replace(CONFIG, kv_tokens=512), model, 2, "decode"),
    ]
    requests = random_requests(11, 60, 60)
    recorder = Recorder(ApiLatency(request_s=0.001))
    run = simulate_cluster(requests, pools, link=link, recorder=recorder)
    run.pauses = pd.DataFrame(stamps_of(recorder.pauses, PAUSE_COLUMNS))
    run.handovers = pd.DataFrame(stamps_of(recorder.handovers, HANDOVER_COLUMNS))
    assert len(run.pauses)
    explainer = Explainer(run)
    for one in requests:
        found = explainer.explain(one.request_id)
        assert sum(found.parts_s.values()) == pytest.approx(found.e2e_s, abs=1e-9)
        least_s = 0.0 if one.output_tokens == 1 else 0.01 + 1e-5 * one.prompt_tokens
        assert found.parts_s["transfer"] >= least_s - 1e-9
        assert found.parts_s["api"] == pytest.approx(0.001, abs=1e-9)
        assert (found.parts_s["preempted"] > 0) == (found.preemptions > 0)


def test_the_slowest_come_first_and_an_unknown_id_names_its_neighbours() -> None:
    run = simulated(random_requests(1, 20, 50), CONFIG, SERVER_S)
    explainer = Explainer(run)
    slowest = explainer.slowest(3)
    assert [one.e2e_s for one in slowest] == run.requests["e2e_s"].nlargest(3).tolist()
    with pytest.raises(RunError, match=r"no request 'r100'.*did you mean 'r10'"):
        explainer.explain("r100")
    with pytest.raises(RunError, match="there are 20, such as 'r0', 'r1', 'r2'"):
        explainer.explain("zzz")


# --- the run folder


def test_explaining_a_run_executes_no_code_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "step.py").write_text("raise SystemExit('executed')")
    assert servers_of(simulated(STORY, CONFIG, STORY_S, f"{tmp_path}/step.py:Model")) == ()
    assert len(servers_of(simulated(STORY, CONFIG, STORY_S, "base-cpu"))) == 1
