"""Five-request stories: the exact batches of each policy, step by step."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from servetwin.policies.config import PolicyConfig, QueueOrder, Victim
from servetwin.policies.kv.paged import PagedKV
from servetwin.policies.sequence import Sequence
from servetwin.policies.step_record import StepRecord
from servetwin.sim.core.simulate import simulate
from servetwin.sim.step_times.step_time import LinearStepTime
from servetwin.workloads.request import Request
from tests.support.checked import CheckedScheduler, request

ONE_SECOND = LinearStepTime.of({"constant": 1.0})
STORIES = yaml.safe_load(Path(__file__).with_name("stories.yaml").read_text())


@pytest.mark.parametrize("name", STORIES)
def test_the_story_goes_as_it_is_told(name: str) -> None:
    story = STORIES[name]
    requests = [told(*text.split()) for text in story["requests"]]
    swapped_s = story.get("swapped_token_s", 0.0)
    model = LinearStepTime.of({"constant": 1.0, "swapped_tokens": swapped_s})
    scheduler = CheckedScheduler(PolicyConfig(**story["settings"]))
    run = simulate(requests, scheduler, model, keep_records=True)
    assert steps_of(run.records) == story.get("steps", steps_of(run.records))
    columns = story.get("columns", {})
    assert {column: run.requests[column].tolist() for column in columns} == columns


def told(name: str, arrival_s: str, prompt: str, output: str, *fields: str) -> Request:
    """Return a request from its times, lengths and fields, ``a 0.5 4 2 priority=1``."""
    others = {key: yaml.safe_load(value) for key, value in (f.split("=") for f in fields)}
    ids = tuple(others.pop("ids", ()))
    return replace(request(name, float(arrival_s), int(prompt), int(output), ids), **others)


def steps_of(records: list[StepRecord]) -> list[str]:
    """One line per step: time, then ``id@start+tokens`` (``~padding``), then ``-preempted``."""
    return [
        f"{record.now_s:g} "
        + " ".join(
            f"{name}@{start}+{tokens}" + (f"~{padding}" if padding else "")
            for name, start, tokens, padding in record.entries
        )
        + "".join(f" -{name}" for name in record.preempted)
        for record in records
    ]


def test_answers_to_one_prompt_share_it_and_copy_the_partly_filled_block() -> None:
    """100 prompt tokens, 4 answers of 50, blocks of 16: 22 blocks instead of 40 (vLLM, 4.4)."""
    config = PolicyConfig(kv_tokens=1600, block_tokens=16, max_seqs=8)
    scheduler = CheckedScheduler(config)
    asked = replace(request("a", 0.0, prompt=100, output=51), samples=4)
    run = simulate([asked], scheduler, ONE_SECOND, keep_records=True)
    used = [100 - record.free_tokens // 16 for record in run.records]
    assert used[0] == 7
    assert used[1] == 6 + 4, "one copy for each answer but the one that writes in place"
    assert used[-1] == 22
    assert run.requests["output_tokens"].tolist() == [204]
    assert run.requests["last_token_s"].tolist() == [51.0]


def test_beams_share_a_tree_of_blocks_that_are_freed_with_their_last_user() -> None:
    """Beams fork and drop as in the beam search of vLLM's paper (SOSP 2023, figure 9)."""
    memory = PagedKV(PolicyConfig(kv_tokens=64, block_tokens=4))
    first = Sequence("beams", 0.0, 8, 20)
    assert memory.reserve(first, 8)
    first.base_computed_tokens = 8
    beams = [first]
    for _ in range(3):
        child = first.fork()
        assert memory.fork(first, child, 8)
        beams.append(child)
    assert memory.free_tokens() == 64 - 8, "four beams, one prompt"
    memory.check(beams)
    for beam in beams[:3]:
        memory.release(beam)
        memory.check(beams[beams.index(beam) + 1 :])
        assert memory.free_tokens() == 64 - 8
    memory.release(beams[3])
    assert memory.free_tokens() == 64


@pytest.mark.parametrize("order", ["fcfs", "sjf", "priority", "edf", "longest-prefix", "fair"])
def test_the_order_of_the_queue(order: QueueOrder) -> None:
    """One slot; while the first request runs, six others come, and go on in this order."""
    config = PolicyConfig(
        kv_tokens=256,
        block_tokens=4,
        max_seqs=1,
        queue_order=order,
        prefix_cache=order == "longest-prefix",
    )
    first = replace(request("first", 0.0, prompt=8, output=9, ids=(1, 2)), tenant="busy")
    others = [
        replace(request("long", 1.0, prompt=4, output=9), tenant="busy"),
        replace(request("short", 1.1, prompt=4, output=1), tenant="busy"),
        replace(request("vip", 1.2, prompt=4, output=5), priority=7, tenant="busy"),
        replace(request("due", 1.3, prompt=4, output=6), ttft_slo_s=3.0, tenant="busy"),
        replace(request("known", 1.4, prompt=9, output=2, ids=(1, 2, 3)), tenant="busy"),
        replace(request("newcomer", 1.5, prompt=4, output=7), tenant="idle"),
    ]
    run = simulate([first, *others], CheckedScheduler(config), ONE_SECOND)
    ends = run.requests.sort_values("last_token_s")["request_id"].tolist()
    arrivals = [r.request_id for r in others]
    chosen = {"priority": "vip", "edf": "due", "longest-prefix": "known", "fair": "newcomer"}
    expected = ["first", *arrivals]
    if order == "sjf":
        expected = ["first", "short", "vip", "due", "known", "newcomer", "long"]
    elif order in chosen:
        rest = [name for name in arrivals if name != chosen[order]]
        expected = ["first", chosen[order], *rest]
    assert ends == expected


@pytest.mark.parametrize(
    ("victim", "preempted"),
    [("newest", "c"), ("lowest-priority", "b"), ("least-progress", "c")],
)
def test_the_victim_of_preemption(victim: Victim, preempted: str) -> None:
    config = PolicyConfig(kv_tokens=12, block_tokens=2, max_model_len=12, victim=victim)
    requests = [
        replace(request("a", 0.0, prompt=3, output=8), priority=2),
        replace(request("b", 0.5, prompt=2, output=8), priority=0),
        replace(request("c", 1.5, prompt=2, output=8), priority=1),
    ]
    run = simulate(requests, CheckedScheduler(config), ONE_SECOND, keep_records=True)
    assert next(r.preempted for r in run.records if r.preempted) == [preempted]
