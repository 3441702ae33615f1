"""Models with states under every policy: the tokens of transformers, whatever is shared or lost."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from servetwin.engine.checkpoint.find_model import FoundModel, find_model
from servetwin.engine.core.build import build_core
from servetwin.engine.core.core import EngineCore
from servetwin.engine.core.messages import TokenEvent
from servetwin.engine.core.runner import Runner
from servetwin.engine.kv.state_store import StateStore
from servetwin.engine.models.computation import Computation
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.sampling.token_state import NewToken, TokenState
from servetwin.engine.serve_options import ServeOptions
from servetwin.policies.batch import Batch
from servetwin.policies.build import build_scheduler
from servetwin.workloads.errors import EngineError
from tests.support.checkpoint_families import PROMPT_IDS, greedy, write_family
from tests.support.engine_oracle import NEW_TOKENS
from tests.support.recorded_core import RecordedRun, run_greedy

KINDS = ("Mamba2", "Bamba")
"""States alone, and mixed with attention."""
Answers = list[list[int]]


@pytest.fixture(scope="module", params=KINDS)
def model(request: pytest.FixtureRequest, tmp_path_factory: Any) -> tuple[FoundModel, Answers]:
    folder: Path = tmp_path_factory.mktemp(request.param)
    tokens, _ = greedy(write_family(folder, request.param))
    return find_model(str(folder)), tokens


def run(
    found: FoundModel, policies: dict[str, Any], **options: Any,
) -> RecordedRun:  # fmt: skip
    config = replace(found.policies(), **{"kv_tokens": 1024, "max_model_len": 128} | policies)
    return run_greedy(
        found.config, config, PROMPT_IDS, NEW_TOKENS,
        load_weights=found.load_weights(found.config), **options,
    )  # fmt: skip


@pytest.mark.parametrize("prefix_cache", [False, True])
@pytest.mark.parametrize("prompt_blocks", ["whole", "chunk"])
def test_preempted_sequences_start_again(
    model: tuple[FoundModel, Answers], prefix_cache: bool, prompt_blocks: str
) -> None:
    found, tokens = model
    attends = found.config.kv_groups != "state"
    scarce = {
        "batching": "chunked", "token_budget": 24, "kv_tokens": 16 * (16 if attends else 5),
        "prefix_cache": prefix_cache, "prompt_blocks": prompt_blocks,
    }  # fmt: skip
    outcome = run(found, scarce)
    assert outcome.tokens == tokens
    # one state of a sequence needs no more room as it goes on, those at ends of blocks do
    assert (outcome.preemptions > 0) == (attends or prefix_cache)


@pytest.mark.parametrize("budget", [256, 24])
def test_a_prefix_is_taken_as_far_as_a_state_was_kept(
    model: tuple[FoundModel, Answers], budget: int
) -> None:
    found, tokens = model
    cached = {"batching": "chunked", "token_budget": budget, "prefix_cache": True}
    outcome = run(found, cached, joins=[0, 6, 6, 20])
    assert outcome.tokens == tokens
    # 32 tokens are shared, and the first prompt of 40 leaves its state behind 32 of them
    assert outcome.hit_tokens == [0, 32, 0, 0]


def test_prompts_of_one_step_share_its_states(model: tuple[FoundModel, Answers]) -> None:
    found, tokens = model
    outcome = run(found, {"prefix_cache": True, "token_budget": 256})
    assert outcome.tokens == tokens
    assert outcome.hit_tokens[1] == 32


@pytest.mark.parametrize("prefix_cache", [False, True])
def test_answers_to_one_prompt_go_on_from_copies(
    model: tuple[FoundModel, Answers], prefix_cache: bool
) -> None:
    found, tokens = model
    outcome = run(found, {"prefix_cache": prefix_cache}, answers=3)
    assert outcome.tokens == tokens
    assert outcome.further == [each for each in tokens for _ in range(2)]


class Failing(Runner):
    """Raises once after every layer has run, and for each batch with more than two sequences."""

    def execute(self, batch: Batch, states: Mapping[str, TokenState]) -> dict[str, list[NewToken]]:
        if len(batch.entries) > 2:
            self.logits(batch, states)
            raise RuntimeError("too many")
        return super().execute(batch, states)


def test_a_step_that_failed_may_run_again(model: tuple[FoundModel, Answers]) -> None:
    found, tokens = model
    policies = replace(found.policies(), kv_tokens=1024, max_model_len=128, prefix_cache=True)
    scheduler = build_scheduler(policies)
    memory = scheduler.memory
    runner = Failing(
        found.config, Computation(device="cpu"), layout=memory.layout,
        kv_tokens=memory.capacity_tokens, block_tokens=memory.block_tokens,
        load_weights=found.load_weights(found.config),
    )  # fmt: skip
    core = EngineCore(scheduler, runner, prefix_cache=True)
    for index, prompt in enumerate(PROMPT_IDS):
        core.add(str(index), prompt, SamplingParams(NEW_TOKENS, ignore_eos=True), core.clock())
    answers: Answers = [[] for _ in PROMPT_IDS]
    while core.unfinished:
        for event in core.step(core.clock()) or []:
            assert isinstance(event, TokenEvent)
            answers[int(event.request_id)].append(event.token_id)
    assert answers == tokens


def test_an_engine_says_what_its_states_take(model: tuple[FoundModel, Answers]) -> None:
    found, _ = model
    policies = replace(found.policies(), kv_tokens=1024, max_model_len=128)
    core, facts = build_core(
        ServeOptions(str(found.folder), policies, computation=Computation(device="cpu"))
    )
    space = found.config.state_space
    assert space is not None
    convolved, kept = 3 * (8 * 16 + 2 * 2 * 24), 8 * 16 * 24
    states = 64 * len(space.layers) * 4 * (convolved + kept)
    keys = 1024 * found.config.kv_bytes_per_token(4)
    assert facts["runner"]["kv_bytes"] == states + keys
    assert core.unfinished == 0


def test_no_room_for_states_is_said_in_blocks(model: tuple[FoundModel, Answers]) -> None:
    found, _ = model
    with pytest.raises(EngineError, match=r"blocks with states .* of 16 tokens .* would fit"):
        StateStore(found.config, 10**13, 16, dtype=torch.float32, device=torch.device("cpu"))
