"""Decodes that leave early: the shallow model's tokens, the shares, the keys of skipped layers."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from servetwin.engine.core.core import EngineCore
from servetwin.engine.core.early_exit_runner import EarlyExitRunner
from servetwin.engine.core.runner import Runner
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.model_config import ModelConfig
from servetwin.engine.models.weights import Weights, random_weights
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.sampling.token_state import token_state
from servetwin.policies.batch import Batch, ScheduledSequence
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.sequence import Sequence
from servetwin.workloads.errors import EngineError
from tests.support.speculative_engine import SAYS_MUCH, STD, said
from tests.support.timed_requests import TimedRequest

CONFIG = replace(SAYS_MUCH, layers=4, qk_norm=True, qkv_bias=True)
HALF = ((0.5, 1.0),)
SHARED = ((0.5, 0.5), (0.25, 0.25), (1.0, 0.25))
OUTPUT = 40


def runner_of(
    exits: tuple[tuple[float, float], ...], config: ModelConfig = CONFIG, **more: object
) -> Runner:
    make = EarlyExitRunner if exits else Runner
    sizes: dict[str, object] = {"layout": "paged", "kv_tokens": 1024, "weight_std": STD}
    computation = Computation(device="cpu", exits=exits)
    return make(config, computation, **(sizes | more))  # type: ignore[arg-type]


def first_layers(dtype: torch.dtype, device: torch.device) -> Weights:
    """The weights of the first half of the model."""
    weights = random_weights(CONFIG, dtype=dtype, device=device, seed=0, std=STD)
    return replace(weights, layers=list(weights.layers)[:2])


def requests() -> list[TimedRequest]:
    rng = np.random.default_rng(2)
    prompts = [rng.integers(300, 500, 8 + 5 * index).tolist() for index in range(6)]
    given = SamplingParams(OUTPUT, ignore_eos=True)
    return [(0.004 * index, f"r{index}", prompt, given) for index, prompt in enumerate(prompts)]


def core_of(exits: tuple[tuple[float, float], ...], **policies: object) -> EngineCore:
    config = PolicyConfig(kv_tokens=1024, max_model_len=96, token_budget=64, max_seqs=4)
    config = replace(config, **policies)  # type: ignore[arg-type]
    return EngineCore(build_scheduler(config), runner_of(exits))


def test_decodes_that_all_leave_half_way_say_what_half_of_the_model_says() -> None:
    """After a prompt of one token, which the whole model computes."""
    seq = Sequence("a", 0.0, 1, OUTPUT)
    seq.blocks = list(range(4))
    whole, half = (
        runner_of(HALF),
        runner_of((), replace(CONFIG, layers=2), load_weights=first_layers),
    )
    state = token_state([7], SamplingParams(OUTPUT))
    for step in range(OUTPUT):
        entry = Batch([ScheduledSequence(seq, step, 1, yields_token=True)])
        said_whole = whole.execute(entry, {"a": state})["a"][0].token_id
        said_half = half.execute(entry, {"a": state})["a"][0].token_id
        assert step == 0 or said_whole == said_half
        state.token_ids.append(said_whole)
        seq.base_generated_tokens, seq.base_computed_tokens = step + 1, step + 1


def test_skipped_layers_get_the_keys_and_values_of_the_state_at_the_exit() -> None:
    """They are those of a layer to which the others have added nothing."""
    exiting, seq = runner_of(HALF), Sequence("a", 0.0, 3, OUTPUT)
    seq.blocks = [0]
    state = token_state([5, 6, 7], SamplingParams(OUTPUT))
    prompt = ScheduledSequence(seq, 0, 3, yields_token=True)
    exiting.execute(Batch([prompt]), {"a": state})
    state.token_ids.append(9)
    seq.base_generated_tokens = 1
    exiting.execute(Batch([ScheduledSequence(seq, 3, 1, yields_token=True)]), {"a": state})

    def silent(dtype: torch.dtype, device: torch.device) -> Weights:
        weights = random_weights(CONFIG, dtype=dtype, device=device, seed=0, std=STD)
        layers = list(weights.layers)
        for layer in layers[2:]:
            layer["attention_out"].zero_()
            layer["down"].zero_()
        return replace(weights, layers=layers)

    expected = runner_of((), load_weights=silent)
    for stored, found in zip(expected.store.tensors, exiting.store.tensors, strict=True):
        stored.copy_(found)
    expected.execute(Batch([ScheduledSequence(seq, 3, 1, yields_token=True)]), {"a": state})
    for stored, found in zip(expected.store.tensors, exiting.store.tensors, strict=True):
        assert found[:, 3] == pytest.approx(stored[:, 3], abs=1e-6)


@pytest.mark.parametrize("batching", ["continuous", "chunked", "static"])
def test_an_answer_does_not_depend_on_what_else_is_in_the_batch(batching: str) -> None:
    policies = {"batching": batching, "token_budget": 20}
    together = said(core_of(SHARED, **policies), requests())
    alone: dict[str, list[int]] = {}
    for request in requests():
        alone |= said(core_of(SHARED, **policies), [(0.0, *request[1:])])
    assert together == alone
    assert [len(tokens) for tokens in together.values()] == [OUTPUT] * 6
    assert together != said(core_of((), **policies), requests())


def test_decodes_leave_as_often_as_the_shares_say(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    leaves = EarlyExitRunner._leaves

    def counted(self: EarlyExitRunner, step: object) -> list[int]:
        found = leaves(self, step)  # type: ignore[arg-type]
        left.extend(
            layers
            for layers, entry in zip(found, step.entries, strict=True)  # type: ignore[attr-defined]
            if entry.start >= entry.seq.prompt_tokens
        )
        return found

    monkeypatch.setattr(EarlyExitRunner, "_leaves", counted)
    said(core_of(SHARED), requests())
    assert len(left) == 6 * (OUTPUT - 1)
    for layers, share in ((1, 0.25), (2, 0.5), (4, 0.25)):
        found = left.count(layers) / len(left)
        assert abs(found - share) < 3.3 * (share * (1 - share) / len(left)) ** 0.5


def test_exits_at_the_last_layer_change_nothing() -> None:
    assert said(core_of(((1.0, 1.0),)), requests()) == said(core_of(()), requests())


@pytest.mark.parametrize(
    "exits", [((0.0, 1.0),), ((0.5, 0.5),), ((0.5, 1.5), (1.0, -0.5)), ((1.5, 1.0),)]
)
def test_exits_that_make_no_sense_are_refused(exits: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(EngineError, match=r"^exits .*: depths must be above 0 and at most 1"):
        Computation(exits=exits)


def test_it_says_where_decodes_leave() -> None:
    assert runner_of(HALF).describe()["exits"] == [[0.5, 1.0]]
