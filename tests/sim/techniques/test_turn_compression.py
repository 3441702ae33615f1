"""Conversations whose ended turns are compressed: what is kept, read and refused."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.techniques.attention import KVBudget
from servetwin.sim.techniques.memory import LowRankKV, TurnCompression
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.trace import Trace
from tests.support.attention_techniques import A100, LLAMA, applied, ideal, step_s
from tests.support.checked import request

WIDTH, MATRICES = 4096, 2 * 32


@pytest.mark.parametrize("turns", [1, 2, 8, 64])
def test_earlier_turns_are_small_and_this_one_is_whole(turns: int) -> None:
    """r (l - T) + T d + r d elements of each matrix, by arithmetic of its own."""
    rank, turn = 128, 300
    low = applied(LLAMA, TurnCompression(rank=rank, turn_tokens=turn))
    earlier = rank * turn * (turns - 1) + rank * WIDTH
    assert low.resident_kv_elements(turn * turns) == MATRICES * (earlier + turn * WIDTH)
    dropped = applied(LLAMA, TurnCompression(method="drop", kept_tokens=100, turn_tokens=turn))
    kept = min(turn * turns, turn + 100)
    assert dropped.resident_kv_elements(turn * turns) == MATRICES * kept * WIDTH


def test_a_decode_reads_factors_of_the_earlier_turns_and_all_of_this_one() -> None:
    plain, low = ideal(LLAMA), TurnCompression(rank=256, turn_tokens=512).apply(ideal(LLAMA))
    read = [8000 * WIDTH, 256 * (8000 + WIDTH) + (WIDTH - 256) * 512]
    written = [WIDTH, 256]
    saved = 2 * MATRICES * (read[0] - read[1] + written[0] - written[1])
    assert step_s(plain, 1, 8000) - step_s(low, 1, 8000) == pytest.approx(
        saved / A100.memory_bytes_per_s, rel=1e-6
    )


def test_without_a_whole_turn_it_is_a_low_rank_and_dropping_is_a_budget() -> None:
    turn = TurnCompression(rank=64, turn_tokens=1)
    low = applied(LLAMA, LowRankKV(rank=64))
    more = applied(LLAMA, turn).resident_kv_elements(999) - low.resident_kv_elements(999)
    assert more == MATRICES * (WIDTH - 64)
    drop = TurnCompression(method="drop", kept_tokens=300, turn_tokens=200)
    assert applied(LLAMA, drop) == applied(LLAMA, KVBudget(heavy_tokens=300, recent_tokens=200))


@given(
    ranks=st.lists(st.integers(1, 4095), min_size=2, max_size=2).map(sorted),
    turn=st.integers(1, 2000),
    context=st.integers(1, 30_000),
)
def test_a_higher_rank_keeps_more_and_takes_longer(
    ranks: list[int], turn: int, context: int
) -> None:
    setups = [TurnCompression(rank=r, turn_tokens=turn).apply(ideal(LLAMA)) for r in ranks]
    less, more = (s.deployment.model.resident_kv_elements(context) for s in setups)
    assert less <= more
    steps = [step_s(setup, 2, context) for setup in setups]
    assert steps[0] <= steps[1] * (1 + 1e-9)


def conversation(turns: int, tokens: int) -> Trace:
    """Every turn is a request whose prompt is all that was said before, and a question."""
    requests = tuple(
        request(str(n), 100.0 * n, tokens * n + tokens // 2, tokens // 2) for n in range(turns)
    )
    return Trace(requests, "conversation")


@pytest.mark.parametrize("method", ["low-rank", "drop"])
def test_later_turns_of_a_conversation_are_answered_sooner(method: Any) -> None:
    """Five turns of 600 tokens: the first is whole on both sides, later ones read less."""
    technique = TurnCompression(method=method, rank=64, kept_tokens=64, turn_tokens=600)
    plain, with_it = (
        run_once(conversation(5, 600), setup.scenario()).requests
        for setup in (ideal(LLAMA), technique.apply(ideal(LLAMA)))
    )
    gains = (plain["tpot_s"] / with_it["tpot_s"]).tolist()
    assert all(a < b for a, b in pairwise(gains))
    assert 1.07 < gains[-1] < 1.1, "2000 tokens less of 13.2 GB and 2700 tokens"
    assert with_it["output_tokens"].tolist() == plain["output_tokens"].tolist()


def test_more_conversations_fit() -> None:
    policies = [
        setup.scenario().policies
        for setup in (ideal(LLAMA), TurnCompression(turn_tokens=512).apply(ideal(LLAMA)))
    ]
    plain, low = policies
    full, state = low.kv_groups.split(",")
    assert full == "full"
    held = int(state.removeprefix("state:")) + 3500
    assert low.kv_tokens // held > 3 * (plain.kv_tokens // 3500)


@pytest.mark.parametrize(
    ("technique", "model", "reason"),
    [
        (TurnCompression(rank=4096), "llama-2-7b", "rank 4096 saves nothing where K and V are "
         "4096 wide; it must be less than 4096"),
        (TurnCompression(), "mamba-2.8b", "turn-compression: mamba-2.8b has no attention"),
    ],
)  # fmt: skip
def test_what_saves_nothing_is_refused(technique: TurnCompression, model: str, reason: str) -> None:
    with pytest.raises(PolicyError, match=reason):
        technique.apply(ideal(find_model(model)))
