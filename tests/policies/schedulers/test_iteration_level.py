"""Iteration-level scheduling under the rules of other servers, against a server in plain lists."""

import random
from typing import Any

import pytest

from servetwin.policies.batch import BatchShape
from servetwin.policies.config import PolicyConfig
from servetwin.sim.core.simulate import simulate
from servetwin.workloads.request import Request
from tests.support.checked import CheckedScheduler
from tests.support.plain_server import PlainServer, run_plainly
from tests.support.random_runs import STEP_TIME

MAX_SEQS, BUDGET, WATERMARK = 12, 96, 0.03
RULES: dict[str, Any] = {
    "watermark_rounding": "down",
    "decode_needs_free_block": True,
    "one_row_chunk": "prefill",
}
VERSION_0: dict[str, Any] = {"batching": "prefill-first", "budget_count": "padded", **RULES}
SARATHI: dict[str, Any] = {
    "batching": "chunked",
    "admit_after_preemption": True,
    "recompute": "computed",
    **RULES,
}

LIGHTLLM: dict[str, Any] = {
    "batching": "prefill-first",
    "admission": "peak",
    "decodes_between_prefills": 10,
    "one_row_chunk": "prefill",
}


def requests_of(seed: int) -> list[Request]:
    """Return 60 requests that come faster than they are served."""
    rng, now_s, requests = random.Random(seed), 0.0, []
    longest = rng.choice([20, 60])
    for number in range(60):
        now_s += rng.expovariate(30.0)
        lengths = rng.randint(1, longest), rng.randint(1, 80 - longest)
        requests.append(Request(f"r{number}", now_s, *lengths))
    return requests


def step_s(entries: list[tuple[int, int, bool]]) -> float:
    """Return how long the simulator's step takes that has these entries."""
    contexts = [start + 1 for start, _, decodes in entries if decodes]
    chunks = tuple((start, rows) for start, rows, decodes in entries if not decodes)
    return float(
        STEP_TIME.seconds(BatchShape(len(contexts), sum(contexts), len(contexts), chunks))[0]
    )


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rules", [VERSION_0, SARATHI], ids=["version-0", "sarathi"])
def test_every_step_is_that_of_a_server_in_plain_lists(rules: dict[str, Any], seed: int) -> None:
    block_tokens, total_blocks = (4, 60) if seed % 2 else (16, 14)
    watermark_blocks = int(WATERMARK * total_blocks)
    chunks = rules["batching"] == "chunked"
    server = PlainServer(
        total_blocks, block_tokens, MAX_SEQS, BUDGET, watermark_blocks, chunks, shortens=chunks
    )
    assert same_steps(server, requests_of(seed), {**rules, "watermark": WATERMARK}) > 0


@pytest.mark.parametrize("recompute", ["all", "computed"])
@pytest.mark.parametrize("seed", range(6))
def test_a_prompt_preempted_in_its_middle_is_recomputed_as_the_setting_says(
    seed: int, recompute: str
) -> None:
    """Budgets so small that the victims are prompts in progress, often the same one again."""
    shortens = recompute == "computed"
    total_blocks, block_tokens, budget = (40, 4, 14) if seed % 2 else (20, 8, 9)
    server = PlainServer(total_blocks, block_tokens, 8, budget, 1, chunks=True, shortens=shortens)
    rules = {**SARATHI, "watermark": 1 / total_blocks, "recompute": recompute}
    same_steps(server, requests_of(seed), rules)
    assert server.preempted_prompts > 0


@pytest.mark.parametrize("seed", range(6))
def test_with_room_at_the_peak_nothing_is_preempted(seed: int) -> None:
    server = PlainServer(320, 1, MAX_SEQS, BUDGET, 0, chunks=False, interval=10)
    assert same_steps(server, requests_of(seed), LIGHTLLM) == 0


def same_steps(server: PlainServer, requests: list[Request], rules: dict[str, Any]) -> int:
    """Assert that both servers decide and time every step alike; return the preemptions."""
    config = PolicyConfig(
        **rules,
        max_seqs=server.max_seqs,
        token_budget=server.token_budget,
        block_tokens=server.block_tokens,
        kv_tokens=server.block_tokens * server.total_blocks,
    )
    plain = run_plainly(server, requests, step_s)
    run = simulate(requests, CheckedScheduler(config), STEP_TIME, keep_records=True)
    decided = [sorted(entry[:3] for entry in record.entries) for record in run.records]
    assert decided == plain.steps
    frame = run.requests.set_index("request_id")
    assert frame["preemptions"].sum() == plain.preemptions
    assert frame["first_token_s"].to_dict() == pytest.approx(plain.first_token_s, abs=1e-9)
    assert frame["last_token_s"].to_dict() == pytest.approx(plain.last_token_s, abs=1e-9)
    return plain.preemptions
