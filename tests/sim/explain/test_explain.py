"""Where the time of a request went: told from a run's columns, held against its step records."""

import json
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

from policies.batch import BatchShape
from policies.config import PolicyConfig
from policies.registry import build_scheduler
from policies.step_record import StepRecord
from sim.core.cluster import simulate_cluster
from sim.core.kv_transfer import KVLink
from sim.core.pools import Pool
from sim.core.recorder import STEP_COLUMNS, Recorder
from sim.core.simulate import simulate
from sim.explain.explain import PARTS, Explainer, Explanation
from sim.explain.queue_cause import queue_cause
from sim.explain.timeline import REPLICAS, REQUESTS, Event, trace_events, write_trace
from sim.records.metrics import derive
from sim.records.run import HANDOVER_COLUMNS, PAUSE_COLUMNS, Run, RunError, load_run, stamps_frame
from sim.step_times.profile import ApiLatencyFit, Profile, StepTimeFit
from sim.step_times.step_time import ApiLatency, LinearStepTime
from tests.support.checked import request
from workloads.request import Request

STORY_S = {"constant": 1.0, "prefill_chunks": 2.0}
STORY = [request("a", 0.0, 4, 5), request("b", 1.5, 4, 2)]
"""A step takes 1 s, and 2 s more for every prompt; b comes while a's prompt is computed."""

SERVER_S = {"constant": 0.002, "rows_from_0": 2e-5, "decode_context_tokens": 5e-8}
CONFIG = PolicyConfig(kv_tokens=2_048, max_seqs=16, token_budget=256)


def write_profile(
    folder: Path, coefficients: dict[str, float], api: ApiLatency | None = None
) -> str:
    fitted = ApiLatencyFit()
    if api is not None:
        fitted = ApiLatencyFit(request_s=api.request_s, chunk_s=api.chunk_s)
    profile = Profile(
        name="test", origin="computed", machine={}, engine={}, policies={}, api=fitted,
        layouts={"paged": StepTimeFit(coefficients=coefficients)},
    )  # fmt: skip
    profile.save(folder / "test.json")
    return str(folder / "test.json")


def simulated(
    requests: list[Request], config: PolicyConfig, coefficients: dict[str, float], profile: str = ""
) -> Run:
    """A run with all that an explanation reads; its pauses are read off the step records."""
    model = LinearStepTime.of(coefficients)
    run = simulate(requests, build_scheduler(config), model)
    records = records_of(requests, config, coefficients)
    run.pauses = pauses_of(records, [one.request_id for one in requests])
    run.scenario = {"policies": config.as_dict(), "profile": profile}
    return run


def records_of(
    requests: list[Request], config: PolicyConfig, coefficients: dict[str, float]
) -> list[StepRecord]:
    model = LinearStepTime.of(coefficients)
    return simulate(requests, build_scheduler(config), model, keep_records=True).records


def pauses_of(records: list[StepRecord], ids: list[str]) -> pd.DataFrame:
    pauses, away = list[list[float]](), dict[str, float]()
    for record in records:
        for name in {entry[0] for entry in record.entries} & set(away):
            pauses.append([ids.index(name), away.pop(name), record.now_s])
        away |= dict.fromkeys(record.preempted, record.now_s)
    return stamps_frame(pauses, PAUSE_COLUMNS)


def random_requests(seed: int, count: int, rate_per_s: float) -> list[Request]:
    rng = np.random.default_rng(seed)
    arrivals_s = rng.exponential(1 / rate_per_s, count).cumsum()
    prompts, outputs = rng.integers(1, 300, count), rng.integers(1, 150, count)
    return [
        Request(f"r{i}", float(arrivals_s[i]), int(prompts[i]), int(outputs[i]))
        for i in range(count)
    ]


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


STEPS = dict.fromkeys(STEP_COLUMNS, 0) | {"steps": 1, "free_kv_tokens": 100}


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
    handovers = stamps_frame([(0, 2.0, 3.25, 4.0)], HANDOVER_COLUMNS)
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
def test_the_parts_are_those_that_every_step_record_shows(
    tmp_path: Path, batching: str, token_budget: int
) -> None:
    config = replace(CONFIG, batching=batching, token_budget=token_budget, kv_tokens=1_024)
    requests = random_requests(seed=7, count=150, rate_per_s=30)
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


@settings(max_examples=15)
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
    run.pauses = stamps_frame(recorder.pauses, PAUSE_COLUMNS)
    run.handovers = stamps_frame(recorder.handovers, HANDOVER_COLUMNS)
    assert len(run.pauses)
    explainer = Explainer(run)
    for one in requests:
        found = explainer.explain(one.request_id)
        assert sum(found.parts_s.values()) == pytest.approx(found.e2e_s, abs=1e-9)
        least_s = 0.0 if one.output_tokens == 1 else 0.01 + 1e-5 * one.prompt_tokens
        assert found.parts_s["transfer"] >= least_s - 1e-9
        assert found.parts_s["api"] == pytest.approx(0.001, abs=1e-9)
        assert (found.parts_s["preempted"] > 0) == (found.preemptions > 0)


# --- why it waited

CAUSES = [
    ({"running": 16}, {}, "places"),
    ({"running": 16}, {"batching": "static"}, "batch"),
    ({"waiting": 0}, {}, "step"),
    ({"prefill_chunks": 2}, {}, "prompts"),
    ({"prefill_chunks": 2, "free_kv_tokens": 9}, {}, "memory"),
    ({}, {}, "memory"),
    ({"start_s": 0.0, "end_s": 1.2}, {"batching": "static"}, "filling"),
]


@pytest.mark.parametrize(("row", "policies", "cause"), CAUSES)
def test_the_cause_of_a_wait_is_what_held_for_most_of_it(
    row: dict[str, Any], policies: dict[str, Any], cause: str
) -> None:
    common = STEPS | {"start_s": 1.0, "end_s": 3.0, "running": 3, "waiting": 2}
    brief = common | {"start_s": 3.0, "end_s": 9.0, "waiting": 0}
    rows = pd.DataFrame([common | row, brief])
    config = {"max_seqs": 16, "batching": "continuous", **policies}
    if policies:
        rows = rows[:1]
    assert queue_cause(rows, 1.0, 3.5, 50, config) == cause
    assert queue_cause(rows, 3.5, 3.5, 50, config) is None


# --- which request


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


def test_pauses_and_handovers_are_kept_where_there_are_any(tmp_path: Path) -> None:
    pauses = stamps_frame([[3, 1.0, 2.0], [4, 5.0]], PAUSE_COLUMNS)
    handovers = stamps_frame([(0, 2.0, 3.25, 4.0)], HANDOVER_COLUMNS)
    run = simulated(STORY, CONFIG, STORY_S)
    kept = replace(run, pauses=pauses, handovers=handovers)
    back = load_run(kept.save(tmp_path / "run"))
    pd.testing.assert_frame_equal(back.pauses, pauses)
    pd.testing.assert_frame_equal(back.handovers, handovers)
    assert np.isnan(back.pauses["resumed_s"][1])
    again = load_run(run.save(tmp_path / "run"))
    assert again.pauses.empty
    assert again.handovers.empty
    assert tuple(again.handovers.columns) == HANDOVER_COLUMNS


# --- the Chrome trace

KEYS = {
    "X": {"ph", "pid", "tid", "name", "ts", "dur", "args"},
    "C": {"ph", "pid", "tid", "name", "ts", "args"},
    "M": {"ph", "pid", "tid", "name", "args"},
    "i": {"ph", "pid", "tid", "name", "ts", "s", "args"},
}


def check_event(event: Event) -> None:
    """The trace event format, as far as these four kinds of events go."""
    assert set(event) == KEYS[event["ph"]]
    assert all(isinstance(event[key], int) for key in ("pid", "tid"))
    assert isinstance(event["name"], str)
    assert all(event.get(key, 0) >= 0 for key in ("ts", "dur"))
    if event["ph"] == "M":
        assert event["name"] in ("process_name", "thread_name")
        assert isinstance(event["args"]["name"], str)
    if event["ph"] == "C":
        assert all(isinstance(value, int) and value >= 0 for value in event["args"].values())


def exported(run: Run, path: Path, *window_s: float) -> list[Event]:
    count = write_trace(path, trace_events(run, Explainer(run).spans, *window_s))
    events: list[Event] = json.loads(path.read_text())
    assert len(events) == count
    return events


def tracks(events: list[Event], process: int) -> dict[int, list[Event]]:
    found = defaultdict(list)
    for event in events:
        if event["ph"] == "X" and event["pid"] == process:
            found[event["tid"]].append(event)
    return found


def test_every_event_is_valid_and_slices_of_a_track_never_overlap(tmp_path: Path) -> None:
    config = replace(CONFIG, kv_tokens=640)
    requests = [*random_requests(3, 60, 40), request("long", 9.0, 5_000, 2)]
    run = simulated(requests, config, SERVER_S)
    assert len(run.pauses)
    events = exported(run, tmp_path / "trace.json")
    for event in events:
        check_event(event)
    by_request = tracks(events, REQUESTS)
    finished = run.requests["status"] == "finished"
    assert set(by_request) == set(np.flatnonzero(finished))
    for row, slices in by_request.items():
        assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-3 for a, b in pairwise(slices))
        lasting_us = sum(s["dur"] for s in slices)
        assert lasting_us == pytest.approx(1e6 * run.requests["e2e_s"][row], abs=0.01)
    names = {s["name"] for slices in by_request.values() for s in slices}
    assert names == {"queue", "prefill", "decode", "preempted"}
    assert [e["name"] for e in events if e["ph"] == "i"] == ["refused"] * int((~finished).sum())


def test_replicas_have_a_slice_per_row_and_counters_of_memory_and_sequences(tmp_path: Path) -> None:
    run = simulated(STORY, CONFIG, STORY_S)
    events = exported(run, tmp_path / "trace.json")
    slices = tracks(events, REPLICAS)[0]
    assert [(s["name"], s["ts"], s["dur"], s["args"]["steps"]) for s in slices] == [
        ("1 prefill", 0, 3e6, 1),
        ("1 prefill + 1 decode", 3e6, 3e6, 1),
        ("2 decode", 6e6, 1e6, 1),
        ("1 decode", 7e6, 2e6, 2),
    ]
    held = [e["args"]["held"] for e in events if e["ph"] == "C" and "KV" in e["name"]]
    assert held == [CONFIG.kv_tokens - free for free in run.steps["free_kv_tokens"]]
    counted = [e["args"] for e in events if e["ph"] == "C" and "sequences" in e["name"]]
    assert [c["running"] for c in counted] == [1, 2, 2, 1, 0]


def test_a_window_keeps_what_shares_time_with_it(tmp_path: Path) -> None:
    run = simulated(STORY, CONFIG, STORY_S)
    events = exported(run, tmp_path / "trace.json", 7.5, 8.0)
    assert set(tracks(events, REQUESTS)) == {0}, "b had its last token at 7"
    assert [s["name"] for s in tracks(events, REPLICAS)[0]] == ["1 decode"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"nowhere/t\.json: the trace cannot be written"):
        write_trace(tmp_path / "nowhere" / "t.json", iter([]))
