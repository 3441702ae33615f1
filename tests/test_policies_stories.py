"""Five-request stories: the exact batches of each policy, step by step."""

from policies.config import PolicyConfig
from sim.simulate import simulate
from sim.step_time import LinearStepTime
from tests.checked import CheckedScheduler, request
from workloads.request import Request

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
        batching="static", kv="contiguous", kv_tokens=100, max_model_len=40, max_seqs=8
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
