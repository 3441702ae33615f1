"""KV memory of serving techniques: paging, shared prefixes, copies."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.policies.config import PrefixIndex as PrefixIndexName
from servetwin.sim.core.simulate import simulate
from servetwin.sim.techniques.effects import Laboratory
from servetwin.sim.techniques.memory import KVCache
from servetwin.sim.techniques.serving import CopyOnWrite, PagedAttention, PrefixCache
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import Experiment
from servetwin.workloads.request import Request
from tests.support.checked import CheckedScheduler, request
from tests.support.formulas.techniques import shared_prefix_hit_rate, token_passes
from tests.support.serving_techniques import ONE_SECOND, REAL, pair, simulated
from tests.support.theory.serving import copy_on_write

pytestmark = pytest.mark.slow


def test_the_cache_pays_memory_for_compute() -> None:
    without, with_it = (token_passes(1000, 250, cached) for cached in (False, True))
    assert (without, with_it) == (281_125, 1_249)
    assert f"{without / with_it:.2f}" == "225.08"
    small = Experiment(alone=2, loaded=4, saturated=4, output_tokens=32)
    effect = Laboratory(0, 4).effect(KVCache(), REAL, small)
    assert {name: effect.of(name).sign for name in ("ttft_alone", "tps_alone", "memory")} == {
        "ttft_alone": "0",
        "tps_alone": "+",
        "memory": "-",
    }
    assert effect.of("ttft_alone").change == 0


def test_paging_changes_nothing_where_both_memories_admit_everybody() -> None:
    trace = list(Experiment(loaded=60).steady(1, 5.0))
    a, b = (simulated(setup, trace).requests for setup in pair(PagedAttention()))
    for column in ("ttft_s", "tpot_s", "e2e_s"):
        assert list(a[column]) == list(b[column])


@pytest.mark.parametrize("slowdown", [0.20, 0.26])
def test_reading_by_a_table_costs_a_little_speed_and_no_first_token(slowdown: float) -> None:
    alone = list(Experiment(alone=3).one_at_a_time(1))
    setups = pair(PagedAttention(attention_slowdown=slowdown))
    a, b = (simulated(setup, alone).requests for setup in setups)
    assert list(a["ttft_s"]) == list(b["ttft_s"])
    ratio = b["tpot_s"] / a["tpot_s"]
    assert (ratio > 1).all()
    assert (ratio < 1.02).all()


def test_paging_raises_the_throughput_that_memory_limits() -> None:
    technique = PagedAttention()
    effect = Laboratory(0, 3).effect(technique, REAL, technique.experiment or Experiment())
    signs = [effect.of(name).sign for name in ("ttft_loaded", "tps_loaded", "throughput")]
    assert signs == ["0", "0", "+"]


def most_blocks(setup: Setup, requests: Sequence[Request]) -> int:
    """Blocks of 16 that are held at once, of 100, where the whole length is held from the start."""
    config = replace(setup.policies, kv_tokens=1600, max_seqs=8, admission="full")
    run = simulate(requests, CheckedScheduler(config), ONE_SECOND)
    return (1600 - int(run.steps["free_kv_tokens"].min())) // 16


def test_answers_of_one_request_share_its_prompt() -> None:
    """A prompt of 100, 4 answers of 50 written tokens: 22 blocks, not 40 (vLLM, section 4.4)."""
    asked = [replace(request("a", 0.0, 100, 51), samples=4)]
    blocks = [most_blocks(setup, asked) for setup in pair(CopyOnWrite())]
    forked = copy_on_write(100, 50, 4, 16)
    assert (forked.blocks, forked.unshared_blocks, forked.copies) == (22, 40, 3)
    assert blocks == [40, 22]


@given(st.integers(1, 120), st.integers(1, 80), st.integers(1, 5))
def test_shared_or_copied_blocks_are_those_of_the_formula(
    prompt: int, output: int, samples: int
) -> None:
    asked = [replace(request("a", 0.0, prompt, output + 1), samples=samples)]
    forked = copy_on_write(prompt, output, samples, 16)
    without, with_it = pair(CopyOnWrite())
    assert most_blocks(without, asked) == forked.unshared_blocks
    assert most_blocks(with_it, asked) == forked.blocks


def test_sharing_within_a_request_changes_no_time() -> None:
    asked = [replace(request("a", 0.0, 500, 40), samples=4)]
    a, b = (simulated(setup, asked).requests for setup in pair(CopyOnWrite()))
    assert list(a["ttft_s"]) == list(b["ttft_s"])
    assert list(a["e2e_s"]) == list(b["e2e_s"])


def test_requests_share_the_blocks_of_a_common_beginning() -> None:
    """Two prompts of 100 that share 96, 50 written tokens each: 6 + 2 (4 blocks), not 2 x 10."""
    asked = [Request(name, 0.0, 100, 51, tuple(range(6)), block_tokens=16) for name in ("a", "b")]
    assert [most_blocks(setup, asked) for setup in pair(PrefixCache())] == [20, 14]


def test_later_turns_of_a_conversation_find_its_answers_too() -> None:
    """Two turns: a prompt of 64 and an answer of 65 (64 are fed back), then 160 with both."""
    prompt, answer = tuple(range(4)), tuple(range(4, 8))
    first = Request("1", 0.0, 64, 65, prompt, block_tokens=16, answer_block_ids=answer)
    second = Request("2", 100.0, 160, 2, tuple(range(10)), block_tokens=16)
    hits = {
        index: simulated(PrefixCache(index=index).apply(REAL), [first, second]).requests
        for index in ("radix", "blocks")
    }
    cached = {index: frame["cached_tokens"].tolist() for index, frame in hits.items()}
    assert cached == {"radix": [0, 64], "blocks": [0, 128]}


@pytest.mark.parametrize("index", ["blocks", "radix"])
def test_prompts_of_640_that_share_512_hit_seven_tenths(index: PrefixIndexName) -> None:
    asked = [Request(str(k), 10.0 * k, 640, 4, tuple(range(32)), block_tokens=16) for k in range(8)]
    run = simulated(PrefixCache(index=index).apply(REAL), asked)
    expected = shared_prefix_hit_rate(8, 512, 640)
    assert expected == pytest.approx(0.7)
    assert run.summary()["prefix_hit_rate_tokens"] == pytest.approx(expected, rel=1e-12)
    without = simulated(PrefixCache(index=index).off(REAL), asked)
    assert without.summary()["prefix_hit_rate_tokens"] == 0
    sooner = run.requests["ttft_s"] < without.requests["ttft_s"]
    assert sooner.tolist() == [False] + [True] * 7, "the first one fills the cache"
