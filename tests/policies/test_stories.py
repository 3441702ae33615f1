"""Five-request stories: the exact batches of each policy, step by step."""

from dataclasses import replace

import pytest

from servetwin.policies.config import PolicyConfig, QueueOrder, Victim
from servetwin.policies.kv.paged import PagedKV
from servetwin.policies.sequence import Sequence
from servetwin.sim.core.simulate import simulate
from servetwin.sim.step_times.step_time import LinearStepTime
from servetwin.workloads.request import Request
from tests.support.checked import CheckedScheduler, request

ONE_SECOND = LinearStepTime.of({"constant": 1.0})


def story(config: PolicyConfig, requests: list[Request]) -> list[str]:
    """One line per step: time, then ``id@start+tokens`` (``~padding``), then ``-preempted``."""
    run = simulate(requests, CheckedScheduler(config), ONE_SECOND, keep_records=True)
    return [
        f"{record.now_s:g} "
        + " ".join(
            f"{name}@{start}+{tokens}" + (f"~{padding}" if padding else "")
            for name, start, tokens, padding in record.entries
        )
        + "".join(f" -{name}" for name in record.preempted)
        for record in run.records
    ]


def test_static_batch_is_padded_and_held_until_its_longest_ends() -> None:
    config = PolicyConfig(batching="static", kv_tokens=64, block_tokens=4, max_seqs=2)
    requests = [
        request("a", 0.0, prompt=5, output=1),
        request("b", 0.0, prompt=3, output=3),
        request("c", 0.5, prompt=2, output=1),
    ]
    assert story(config, requests) == [
        "0 a@0+5 b@0+3~2",
        "1 b@3+1 a@5+0~1",
        "2 b@4+1 a@5+0~1",
        "3 c@0+2",
    ]


def test_static_batch_waits_to_fill_but_not_longer_than_its_limit() -> None:
    config = PolicyConfig(batching="static", kv_tokens=64, max_seqs=3, wait_limit_s=2.0)
    requests = [
        request("a", 0.0, output=1),
        request("b", 1.5, output=1),
        request("c", 10.0, output=1),
        request("d", 10.5, output=1),
        request("e", 11.0, output=1),
    ]
    assert story(config, requests) == ["2 a@0+4 b@0+4", "11 c@0+4 d@0+4 e@0+4"]


def test_static_batch_takes_only_what_memory_holds_to_the_end() -> None:
    config = PolicyConfig(
        batching="static", kv="contiguous", kv_tokens=128, max_model_len=40, max_seqs=8
    )
    requests = [request(name, output=1) for name in "abcde"]
    assert story(config, requests) == ["0.1 a@0+4 b@0+4", "1.1 c@0+4 d@0+4", "2.1 e@0+4"]


def test_continuous_batch_changes_members_every_step() -> None:
    config = PolicyConfig(kv_tokens=64, block_tokens=4, max_seqs=2)
    requests = [
        request("a", 0.0, prompt=3, output=2),
        request("b", 0.5, prompt=2, output=3),
        request("c", 0.6, prompt=2, output=1),
    ]
    assert story(config, requests) == [
        "0 a@0+3",
        "1 a@3+1 b@0+2",
        "2 b@2+1 c@0+2",
        "3 b@3+1",
    ]


def test_long_prompt_is_chunked_beside_the_decodes() -> None:
    config = PolicyConfig(
        batching="chunked", kv_tokens=64, block_tokens=4, max_seqs=4, token_budget=4
    )
    requests = [request("a", 0.0, prompt=2, output=4), request("b", 0.0, prompt=7, output=1)]
    assert story(config, requests) == [
        "0 a@0+2 b@0+2",
        "1 a@2+1 b@2+3",
        "2 a@3+1 b@5+2",
        "3 a@4+1",
    ]


def test_newest_is_preempted_and_recomputed_when_blocks_run_out() -> None:
    config = PolicyConfig(kv_tokens=8, block_tokens=2, max_seqs=4, max_model_len=8)
    requests = [request("a", 0.0, prompt=3, output=4), request("b", 0.0, prompt=3, output=3)]
    assert story(config, requests) == [
        "0 a@0+3 b@0+3",
        "1 a@3+1 b@3+1",
        "2 a@4+1 -b",
        "3 a@5+1",
        "4 b@0+5",
    ]


def test_equal_prefixes_are_computed_once_even_in_the_same_step() -> None:
    config = PolicyConfig(kv_tokens=64, block_tokens=4, prefix_cache=True)
    ids = (7, 8, 9)
    requests = [
        request("a", 0.0, prompt=12, output=1, ids=ids),
        request("b", 0.0, prompt=12, output=1, ids=ids),
        request("c", 5.0, prompt=11, output=1, ids=(7, 8, 10)),
    ]
    assert story(config, requests) == ["0 a@0+12 b@8+4", "5 c@8+3"]


def test_least_recently_used_prefix_is_evicted_first() -> None:
    config = PolicyConfig(kv_tokens=12, block_tokens=4, prefix_cache=True, max_model_len=12)
    requests = [
        request("a", 0.0, prompt=5, output=1, ids=(1, 2)),
        request("b", 2.0, prompt=5, output=1, ids=(3, 4)),
        request("c", 4.0, prompt=5, output=1, ids=(1, 2)),
        request("d", 6.0, prompt=9, output=1, ids=(5, 6, 7)),
        request("e", 8.0, prompt=5, output=1, ids=(3, 4)),
    ]
    assert story(config, requests) == [
        "0 a@0+5",
        "2 b@0+5",
        "4 c@4+1",
        "6 d@0+9",
        "8 e@0+5",
    ]


def test_refusals_name_what_does_not_fit_and_the_rest_goes_on() -> None:
    config = PolicyConfig(kv_tokens=16, block_tokens=4, max_model_len=40, queue_limit=1, max_seqs=1)
    requests = [
        request("fits", 0.0),
        request("too-long", 0.1, prompt=40, output=1),
        request("too-big", 0.2, prompt=16, output=2),
        request("waits", 0.3),
        request("one-too-many", 0.4),
    ]
    run = simulate(requests, CheckedScheduler(config), ONE_SECOND)
    assert dict(zip(run.requests["request_id"], run.requests["error"], strict=True)) == {
        "fits": "",
        "too-long": "too_long: 41 tokens are more than the model length of 40",
        "too-big": "too_long: needs 17 KV tokens, the memory has 16 (4 blocks of 4)",
        "waits": "",
        "one-too-many": "queue_full: 1 requests are waiting already",
    }
    assert run.summary()["requests"] == {
        "total": 5,
        "finished": 2,
        "refused": 3,
        "cancelled": 0,
        "failed": 0,
    }


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


def test_an_answer_without_a_slot_waits_and_computes_its_prompt_anew() -> None:
    config = PolicyConfig(kv_tokens=64, block_tokens=4, max_seqs=2)
    asked = replace(request("a", 0.0, prompt=5, output=3), samples=3)
    assert story(config, [asked]) == [
        "0 a@0+5",
        "1 a@5+1 a@5+1",
        "2 a@6+1 a@6+1",
        "3 a@0+6",
        "4 a@6+1",
    ]


def test_static_batching_refuses_several_answers() -> None:
    asked = replace(request("a"), samples=2)
    run = simulate([asked], CheckedScheduler(PolicyConfig(batching="static")), ONE_SECOND)
    assert run.requests["error"].tolist() == [
        "unsupported: static batching gives one answer to a prompt, not 2"
    ]


def test_beams_share_a_tree_of_blocks_that_are_freed_with_their_last_user() -> None:
    """Beams fork and drop as in the beam search of vLLM's paper (SOSP 2023, figure 9)."""
    memory = PagedKV(PolicyConfig(kv_tokens=64, block_tokens=4))
    first = Sequence("beams", 0.0, 8, 20)
    assert memory.reserve(first, 8)
    first.computed_tokens = 8
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


def test_shortest_job_first_believes_the_estimate_not_the_truth() -> None:
    config = PolicyConfig(kv_tokens=256, max_seqs=1, queue_order="sjf")
    requests = [
        request("first", 0.0, output=3),
        replace(request("short", 1.0, output=2), estimated_output_tokens=500),
        replace(request("long", 1.0, output=9), estimated_output_tokens=1),
    ]
    run = simulate(requests, CheckedScheduler(config), ONE_SECOND)
    ends = run.requests.sort_values("last_token_s")["request_id"].tolist()
    assert ends == ["first", "long", "short"]


def test_those_who_waited_beyond_their_ttft_are_given_up() -> None:
    config = PolicyConfig(kv_tokens=64, max_seqs=1, shed_ttft_s=2.0)
    requests = [request("a", 0.0, output=4), request("late", 1.0), request("fresh", 3.5, output=1)]
    run = simulate(requests, CheckedScheduler(config), ONE_SECOND)
    assert run.requests["error"].tolist() == [
        "",
        "too_late: waited longer than its TTFT limit of 2 s",
        "",
    ]


def test_a_swapped_sequence_comes_back_with_its_tokens_and_pays_for_the_link() -> None:
    config = PolicyConfig(
        kv_tokens=8, block_tokens=2, max_seqs=4, max_model_len=8, preemption="swap",
        host_kv_tokens=8,
    )  # fmt: skip
    model = LinearStepTime.of({"constant": 1.0, "swapped_tokens": 0.25})
    requests = [request("a", 0.0, prompt=3, output=4), request("b", 0.0, prompt=3, output=3)]
    run = simulate(requests, CheckedScheduler(config), model, keep_records=True)
    assert [(r.now_s, [e[:3] for e in r.entries], r.preempted) for r in run.records] == [
        (0.0, [("a", 0, 3), ("b", 0, 3)], []),
        (1.0, [("a", 3, 1), ("b", 3, 1)], []),
        (2.0, [("a", 4, 1)], ["b"]),  # four positions of b leave: one second
        (4.0, [("a", 5, 1)], []),
        (5.0, [("b", 4, 1)], []),  # and come back
    ]
    assert run.requests["last_token_s"].tolist() == [5.0, 7.0]


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


def test_what_the_device_lost_is_loaded_from_the_host_instead_of_computed() -> None:
    config = PolicyConfig(
        kv_tokens=12, block_tokens=4, prefix_cache=True, max_model_len=12, host_cache_tokens=16
    )
    model = LinearStepTime.of({"constant": 1.0, "swapped_tokens": 0.125})
    requests = [
        request("a", 0.0, prompt=9, output=1, ids=(1, 2)),
        request("b", 2.0, prompt=9, output=1, ids=(3, 4)),  # evicts a from the device
        request("c", 4.0, prompt=9, output=1, ids=(1, 2)),  # 8 tokens over the link: one second
        request("d", 8.0, prompt=9, output=1, ids=(5, 6)),  # b's are the oldest in the host
        request("e", 10.0, prompt=9, output=1, ids=(3, 4)),
    ]
    run = simulate(requests, CheckedScheduler(config), model)
    assert run.requests["cached_tokens"].tolist() == [0, 0, 8, 0, 0]
    assert run.requests["ttft_s"].tolist() == [1.0, 1.0, 2.0, 1.0, 1.0]
