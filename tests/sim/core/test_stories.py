"""Where simulators go wrong: static batches that leak, prompts that fit nothing or need nothing."""

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from servetwin.policies.config import PolicyConfig
from servetwin.policies.registry import SCHEDULERS
from servetwin.sim.core.recorder import USAGE_COLUMNS
from servetwin.sim.core.simulate import simulate
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.step_time import LinearStepTime
from servetwin.workloads.request import Request
from tests.support.checked import CheckedScheduler, request

ONE_SECOND = LinearStepTime.of({"constant": 1.0})
SMALL = PolicyConfig(
    kv_tokens=128, block_tokens=4, max_model_len=64, max_seqs=3, token_budget=8, wait_limit_s=1.0
)
MEMORIES: dict[str, dict[str, Any]] = {
    "max": {"kv": "contiguous", "reservation": "max"},
    "pow2": {"kv": "contiguous", "reservation": "pow2"},
    "exact": {"kv": "contiguous", "reservation": "exact"},
    "paged": {"kv": "paged"},
    "radix": {"kv": "paged", "prefix_cache": True, "prefix_index": "radix"},
    "blocks": {"kv": "paged", "prefix_cache": True, "prefix_index": "blocks"},
    "full": {"kv": "paged", "admission": "full"},
    "swap": {"kv": "paged", "preemption": "swap", "host_kv_tokens": 64},
}
every_memory = pytest.mark.parametrize("memory", MEMORIES)
every_scheduler = pytest.mark.parametrize("batching", SCHEDULERS)


def run_checked(config: PolicyConfig, requests: list[Request], macro: bool = True) -> Run:
    """Every law at every step; every request ends, and the memory is as empty as at the start."""
    scheduler = CheckedScheduler(config)
    run = simulate(requests, scheduler, ONE_SECOND, macro=macro, keep_usage=True)
    assert run.requests["request_id"].tolist() == [asked.request_id for asked in requests]
    assert set(run.requests["status"]) <= {"finished", "refused"}
    assert scheduler.load()[:2] == (0, 0), "something is left over"
    usage = scheduler.memory.usage([])
    assert usage.free_tokens + usage.cached_tokens + usage.external_waste_tokens == 128
    return run


def parts(run: Run) -> pd.DataFrame:
    """The six parts of the memory at the beginning of every step."""
    return run.steps[
        [name for name in USAGE_COLUMNS if name not in ("capacity_tokens", "shared_tokens")]
    ]


@every_memory
@pytest.mark.parametrize("macro", [True, False])
def test_static_batches_of_mixed_lengths_leak_nothing(memory: str, macro: bool) -> None:
    outputs = [1, 20, 5, 30, 2, 2, 11, 1, 1, 17, 29, 3, 8, 1, 24, 9, 1]
    requests = [
        request(str(place), place * 0.1, 1 + 7 * place % 23, output, ids=(*range(place % 3, 9),))
        for place, output in enumerate(outputs)
    ]
    config = replace(SMALL, batching="static", **MEMORIES[memory])
    run = run_checked(config, requests, macro)
    assert run.requests["output_tokens"].tolist() == outputs
    shares = parts(run)
    assert (shares.sum(axis=1) == 128).all()
    assert (shares >= 0).all(axis=None)
    batch = (run.steps["prefill_chunks"] > 0).cumsum()
    given_out = ["live_tokens", "reserved_tokens", "internal_waste_tokens"]
    held = shares[given_out].sum(axis=1).groupby(batch)
    assert held.max().equals(held.min()), "a batch holds its memory to its end"


@pytest.mark.parametrize("memory", ["max", "paged"])
def test_a_static_batch_lasts_as_long_as_its_longest(memory: str) -> None:
    """Two batches of three by arithmetic: k steps for the longest output k of each."""
    outputs = [2, 9, 4, 7, 1, 3]
    requests = [request(str(n), output=output) for n, output in enumerate(outputs)]
    config = replace(SMALL, batching="static", **MEMORIES[memory], kv_tokens=256)
    run = simulate(requests, CheckedScheduler(config), ONE_SECOND)
    assert run.requests["last_token_s"].tolist() == [2, 9, 4, 9 + 7, 9 + 1, 9 + 3]


@every_scheduler
@every_memory
def test_a_prompt_longer_than_the_token_budget_is_served(batching: str, memory: str) -> None:
    config = replace(SMALL, batching=batching, **MEMORIES[memory])
    long = [request("long", 0.0, prompt=40, output=5), request("longer", 1.5, prompt=58, output=6)]
    requests = [long[0], request("short", 0.5), long[1], request("last", 3.0, prompt=8)]
    run = run_checked(config, requests)
    assert set(run.requests["status"]) == {"finished"}
    assert run.requests["output_tokens"].tolist() == [5, 2, 6, 2]
    if batching not in ("static", "insertion"):
        assert run.steps["rows"].max() == config.token_budget
        first_s = run.requests["first_token_s"].iloc[0]
        assert first_s >= 40 / config.token_budget, "a step computes 8 rows and takes a second"


@every_scheduler
@every_memory
@pytest.mark.parametrize(
    ("prompt", "output", "reason"),
    [
        (129, 1, "130 tokens are more than the model length of 64"),
        (60, 5, "65 tokens are more than the model length of 64"),
        (1, 64, "65 tokens are more than the model length of 64"),
    ],
)
def test_a_request_longer_than_the_model_is_refused_and_the_others_go_on(
    batching: str, memory: str, prompt: int, output: int, reason: str
) -> None:
    config = replace(SMALL, batching=batching, **MEMORIES[memory])
    run = run_checked(config, among_others(prompt, output))
    assert run.requests["status"].tolist() == ["finished", "refused", "finished"]
    assert run.requests["error"].iloc[1] == f"too_long: {reason}"


@every_scheduler
@every_memory
@pytest.mark.parametrize(("prompt", "output"), [(129, 1), (100, 30), (1, 129), (500, 500)])
def test_a_request_longer_than_the_memory_is_refused_and_the_others_go_on(
    batching: str, memory: str, prompt: int, output: int
) -> None:
    config = replace(SMALL, batching=batching, **MEMORIES[memory], max_model_len=4096)
    if memory == "max":  # reserves the longest request for each
        config = replace(config, reservation="exact")
    run = run_checked(config, among_others(prompt, output))
    assert run.requests["status"].tolist() == ["finished", "refused", "finished"]
    reason = run.requests["error"].iloc[1]
    assert reason.startswith("too_long: needs ")
    assert "128" in reason


def among_others(prompt: int, output: int) -> list[Request]:
    misfit = request("misfit", 0.0, prompt, output)
    return [request("before", 0.0, output=3), misfit, request("after", 0.5, output=3)]


@every_scheduler
@pytest.mark.parametrize("admission", ["prompt", "full"])
@pytest.mark.parametrize("kv", ["contiguous", "paged"])
@pytest.mark.parametrize(("output", "fits"), [(65, True), (66, False)])
def test_the_longest_that_fits_is_served_alone(
    batching: str, admission: Any, kv: str, output: int, fits: bool
) -> None:
    """64 + 65 tokens hold 128 positions, as the last token is never fed back."""
    limits = replace(SMALL, max_model_len=4096, admission=admission)
    reservation: Any = "exact" if kv == "contiguous" else "max"
    config = replace(limits, batching=batching, kv=kv, reservation=reservation)
    output -= kv == "contiguous"  # regions are sized for the last token too
    requests = [request("all", 0.0, 64, output), request("next", 0.0, 8, 8)]
    run = run_checked(config, requests)
    assert run.requests["status"].tolist() == ["finished" if fits else "refused", "finished"]


@every_scheduler
@pytest.mark.parametrize("index", ["radix", "blocks"])
@pytest.mark.parametrize("eviction", ["lru", "lfu", "fifo"])
@pytest.mark.parametrize("apart_s", [0.0, 0.5, 100.0])
def test_a_prompt_that_is_cached_whole_still_computes_its_last_token(
    batching: str, index: Any, eviction: Any, apart_s: float
) -> None:
    """Four equal prompts of four full blocks: three can be hit, the last is computed."""
    config = replace(
        SMALL, batching=batching, prefix_cache=True, prefix_index=index, eviction=eviction
    )
    requests = [request(str(n), n * apart_s, 16, 3, ids=(1, 2, 3, 4)) for n in range(4)]
    run = run_checked(config, requests)
    assert run.requests["status"].tolist() == ["finished"] * 4
    assert (run.requests["first_token_s"] > run.requests["scheduled_s"]).all()
    assert set(run.requests["cached_tokens"]) <= {0, 12}
    if apart_s == 100.0:
        assert run.requests["cached_tokens"].tolist() == [0, 12, 12, 12]


@every_scheduler
@pytest.mark.parametrize("index", ["radix", "blocks"])
def test_a_cached_prefix_that_fills_the_memory_gives_way(batching: str, index: Any) -> None:
    """Each request needs all 32 blocks: what the one before left is hit or evicted, never stuck."""
    config = replace(
        SMALL, batching=batching, prefix_cache=True, prefix_index=index, max_model_len=4096
    )
    families = [100, 100, 200, 100]
    requests = [
        request(str(n), n * 500.0, 124, 5, ids=tuple(range(family, family + 31)))
        for n, family in enumerate(families)
    ]
    run = run_checked(config, requests)
    assert run.requests["status"].tolist() == ["finished"] * 4
    assert run.requests["cached_tokens"].tolist()[:3] == [0, 120, 0]


@pytest.mark.parametrize("macro", [True, False])
@pytest.mark.parametrize(("recompute", "stamps"), [("all", (1, 10, 11)), ("computed", (2, 5, 15))])
def test_the_first_token_of_a_shortened_prompt_is_stamped_once_and_the_answer_keeps_its_length(
    recompute: Any, stamps: tuple[int, float, float], macro: bool
) -> None:
    """``b`` is preempted at 4 of 11 prompt tokens, and with ``computed`` again as a decode.

    The steps are those of ``tests/policies/schedulers/step_stories.yaml``, a second each.
    """
    config = PolicyConfig(
        batching="chunked", kv_tokens=16, block_tokens=4, max_model_len=64, max_seqs=4,
        token_budget=4, recompute=recompute,
    )  # fmt: skip
    requests = [request("a", prompt=3, output=7), request("b", prompt=11, output=2)]
    run = simulate(requests, CheckedScheduler(config), ONE_SECOND, macro=macro)
    columns = ["preemptions", "first_token_s", "last_token_s", "prompt_tokens", "output_tokens"]
    assert run.requests[columns].to_numpy().tolist() == [[0, 1, 7, 3, 7], [*stamps, 11, 2]]
