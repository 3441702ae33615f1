"""WEKA's agent sessions: files and directories."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import gamma

from servetwin.workloads.errors import TraceError
from servetwin.workloads.graphs.links import without_failed
from servetwin.workloads.reading import read_trace
from servetwin.workloads.request import Request
from servetwin.workloads.statistics.statistics import prefix_statistics
from servetwin.workloads.trace import Trace
from tests.support.effort import only_in_ci
from tests.support.trace_rows import SUB_AGENT, WEKA, Write, figures, session, shared, step


def test_weka_session(write: Write) -> None:
    trace = read_trace(write(json.dumps(WEKA)))
    assert trace.requests[:2] == (
        Request("s:0", 0.0, 5, 7, (1,), 4, "s", (), 0, None, 5, model="big", kind="n"),
        Request("s:1", 10.0, 9, 7, (1, 2), 4, "s", ("s:0",), 1, 3.0, 7, model="big", kind="n"),
    )
    assert [
        (r.request_id, r.arrival_s, r.parent_ids, r.turn, r.delay_s, r.model) for r in trace
    ] == [
        ("s:0", 0.0, (), 0, None, "big"),
        ("s:1", 10.0, ("s:0",), 1, 3.0, "big"),
        ("s/2:0", 15.0, ("s:1",), 0, 3.0, "small"),  # 5.5 s before it reports, 3 s after s:1
        ("s/2:1", 18.0, ("s/2:0",), 1, 3.0, "small"),
        ("s:3", 30.0, ("s:1", "s/2:1"), 2, 10.0, "big"),
    ]
    assert [r.session_id for r in trace] == ["s", "s", *["s/2"] * 2, "s"]
    assert [r.shared_prefix_tokens for r in trace] == [5, 7, 5, 5, 7]
    assert trace.notes == ("4 rows sent a delay after the parent: for closed-loop replay",)


def test_a_turn_waits_for_the_sub_agents_that_had_ended(write: Write) -> None:
    """The second sub-agent reports after the next turn began: it runs in the background."""
    background = {**SUB_AGENT, "t": 27.5, "duration_ms": 14500}
    late = {**background, "requests": [step(0, 2), step(12, 3)]}
    steps = session(step(0, 1), step(10, 2), SUB_AGENT, late, step(25, 3), step(31, 4))
    trace = {r.request_id: (r.parent_ids, r.delay_s) for r in read_trace(write(json.dumps(steps)))}
    assert trace["s/3:0"] == (("s:1",), 1.0)
    assert trace["s:4"] == (("s:1", "s/2:1"), 5.0)
    assert trace["s:5"] == (("s:4", "s/3:1"), 4.0)  # both ended at 27: it has joined by now
    assert trace["s/3:1"] == (("s/3:0",), 3.0)


def test_a_flat_request_before_the_answer_is_of_a_sub_agent(write: Write) -> None:
    other = [1, *range(50, 58)]
    steps = session(
        step(0, 2),
        step(10, 3, api_time=9.0),
        step(12, 4, hash_ids=other[:4]),
        step(15, 5, hash_ids=other[:5]),
        step(20, 4),
        step(23, 6, hash_ids=other[:6]),
    )
    trace = read_trace(write(json.dumps(steps)))
    assert [(r.request_id, r.session_id, r.turn, r.parent_ids) for r in trace] == [
        ("s:0", "s", 0, ()),
        ("s:1", "s", 1, ("s:0",)),
        ("s:2", "s/2", 0, ("s:0",)),  # its launcher had no later answer
        ("s:3", "s/2", 1, ("s:2",)),
        ("s:4", "s", 2, ("s:1",)),
        ("s:5", "s/2", 2, ("s:3",)),  # it goes on in the background
    ]


def test_weka_session_written_on_many_lines(write: Write) -> None:
    plain = read_trace(write(json.dumps(WEKA)))
    assert read_trace(write(json.dumps(WEKA, indent=1))) == plain


def write_sessions(directory: Path, count: int) -> Path:
    for index in range(count):
        record = session(step(0, 2), step(10, 3), id=f"s{index:04}")
        (directory / f"s{index:04}.json").write_text(json.dumps(record))
    return directory


def test_weka_ids_stay_inside_their_file(tmp_path: Path) -> None:
    trace = read_trace(write_sessions(tmp_path, 3))
    ids = {name: set[int]() for name in ("s0000", "s0001", "s0002")}
    for request in trace:
        ids[str(request.session_id)].update(request.prefix_block_ids)
    assert [len(own) for own in ids.values()] == [3, 3, 3]
    assert len(set.union(*ids.values())) == 9


def test_weka_sessions_start_as_a_poisson_process(tmp_path: Path) -> None:
    trace = read_trace(write_sessions(tmp_path, 401), session_rate_per_s=2.0, seed=3)
    starts_s = np.array([r.arrival_s for r in trace if r.turn == 0])
    assert starts_s[0] == 0.0
    # the sum of 400 exponential gaps of mean 0.5 s is Gamma(400, 0.5 s)
    low_s, high_s = gamma(400, scale=0.5).interval(0.999)
    assert low_s < starts_s[-1] < high_s
    gaps_s = np.diff(starts_s)
    assert 0.8 < gaps_s.std() / gaps_s.mean() < 1.2
    assert trace.notes[0].startswith("401 sessions started at 2/s, a Poisson process (seed 3)")


def test_weka_starts_depend_on_the_seed_alone(tmp_path: Path) -> None:
    path = write_sessions(tmp_path, 4)
    assert read_trace(path, seed=1) == read_trace(path, seed=1)
    assert read_trace(path, seed=1) != read_trace(path, seed=2)


def test_weka_bad_sessions_and_requests_can_be_skipped(tmp_path: Path) -> None:
    write_sessions(tmp_path, 2)
    (tmp_path / "s0002.json").write_text('{"id": "s2"}')
    (tmp_path / "s0003.json").write_text(
        json.dumps(session(step(0, 1), step(1, 1, out=-1), step(2, 2), id="s3"))
    )
    trace = read_trace(tmp_path, max_bad_rows=2)
    assert len(trace) == 6
    links = {r.request_id: r.parent_ids for r in trace if r.session_id == "s3"}
    assert links == {"s3:0": (), "s3:2": ("s3:0",)}
    assert trace.notes[-3:] == (
        "2 bad rows skipped",
        f'{tmp_path}/s0002.json:1: field \'block_size\': missing ({{"id": "s2"}})',
        f"{tmp_path}/s0003.json:1: field 'requests[1].out': negative (-1)",
    )


def test_a_directory_is_weka_alone(tmp_path: Path) -> None:
    write_sessions(tmp_path, 1)
    assert read_trace(tmp_path, format="weka") == read_trace(tmp_path)
    with pytest.raises(TraceError, match=r"only weka sessions come as one, not azure$"):
        read_trace(tmp_path, format="azure")
    with pytest.raises(TraceError, match="session rate"):
        read_trace(tmp_path, session_rate_per_s=0.0)


def test_weka_duplicate_session(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(json.dumps(session(step(0, 1))))
    with pytest.raises(TraceError) as raised:
        read_trace(tmp_path)
    assert str(raised.value) == f"{tmp_path}/b.json:1: field 'id': duplicate (\"s\")"


@pytest.fixture(scope="module")
def weka() -> Trace:
    return read_trace(shared("agentic_weka"), keep_failed=True)


WEKA_ROW = "5,602 | 130,764.2 | 110,788 | 258,255 | 464,221 | 894,371 | 425.1 | 202 | 862 | 3,728 | 9,873 | 0.092"  # noqa: E501


@only_in_ci
def test_reference_figures_of_weka(weka: Trace) -> None:
    assert figures(weka) == [cell.strip() for cell in WEKA_ROW.split("|")]
    prefix = prefix_statistics(weka.requests)
    assert prefix is not None
    assert (prefix["blocks"], prefix["unique_blocks"]) == (11_443_187, 419_369)
    assert f"{prefix['hit_per_block']:.4f}" == "0.9634"
    assert f"{prefix['hit_per_token']:.4f}" == "0.9631"
    assert f"{prefix['full_block_hit_per_token']:.4f}" == "0.9631"
    first_blocks = {r.prefix_block_ids[0] for r in weka if r.prefix_block_ids}
    assert len(first_blocks) == 87


@only_in_ci
def test_weka_links_and_full_blocks(weka: Trace) -> None:
    by_id = {r.request_id: r for r in weka}
    assert len({r.session_id for r in weka}) == 84  # 79 files, a sub-agent, and four flat ones
    assert sum(not r.parent_ids for r in weka) == 79
    assert all(len(r.prefix_block_ids) == r.prompt_tokens // 64 for r in weka)
    for request in weka:
        assert all(by_id[name].arrival_s <= request.arrival_s for name in request.parent_ids)
    (agent_start,) = (r for r in weka if r.session_id == "trace_0020/4" and r.turn == 0)
    launcher = by_id[agent_start.parent_ids[0]]
    # it began when the answer that launched it was complete: 41.03 s after that was asked
    assert agent_start.arrival_s - launcher.arrival_s == pytest.approx(41.125)
    assert agent_start.delay_s == pytest.approx(0.095)


@pytest.mark.slow
def test_weka_failed_requests_are_bridged(weka: Trace) -> None:
    answered = without_failed(weka.requests)
    assert len(answered) == 5_600
    assert sum(not r.parent_ids for r in answered) == 79
