"""Several adapters in one batch, each equal to a model into which it was merged."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from servetwin.engine.adapters.adapter_folder import targets
from servetwin.engine.core.build import build_core
from servetwin.engine.core.core import EngineCore
from servetwin.engine.core.runner import Runner
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.model_config import model_preset
from servetwin.engine.models.weights import Weights, random_weights
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.serve_options import ServeOptions
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from tests.support.adapter_folders import ALPHA, RANK, adapter_tensors, tensor_name, write_adapter
from tests.support.timed_requests import TimedRequest, run_requests

MODEL = replace(model_preset("tiny"), tie_embeddings=False, qkv_bias=True)
POLICIES = PolicyConfig(
    kv_tokens=1024, max_seqs=4, token_budget=24, max_model_len=128, prefix_cache=True
)
EVERY = list(targets(MODEL))
ADAPTERS = {
    "wide": adapter_tensors(MODEL, EVERY, 1),
    "narrow": adapter_tensors(MODEL, ["v_proj"], 2),
}
PROMPT = list(range(300, 340))


def merged(name: str, dtype: torch.dtype, device: torch.device) -> Weights:
    """The weights of the model with an adapter added to them."""
    weights = random_weights(MODEL, dtype, device, seed=0, std=0.06)
    for number, layer in enumerate(weights.layers):
        for module, target in targets(MODEL).items():
            if (down := ADAPTERS[name].get(tensor_name(number, module, "A"))) is not None:
                up = ADAPTERS[name][tensor_name(number, module, "B")]
                rows = layer[target.product].narrow(0, target.start, target.outputs)
                rows += (ALPHA / RANK) * (up @ down)
    return weights


def core_over(runner: Runner) -> EngineCore:
    return EngineCore(build_scheduler(POLICIES), runner, prefix_cache=True)


def make_runner(load: object = None, computation: Computation | None = None) -> Runner:
    memory = build_scheduler(POLICIES).memory
    return Runner(
        MODEL,
        computation or Computation(device="cpu"),
        layout=memory.layout,
        kv_tokens=memory.capacity_tokens,
        block_tokens=memory.block_tokens,
        weight_std=0.06,
        load_weights=load,  # type: ignore[arg-type]
    )


def answers(core: EngineCore, adapters: list[str | None]) -> list[list[int]]:
    """The tokens of the same prompt with each adapter, all at once."""
    requests: list[TimedRequest] = [
        (0.0, str(k), PROMPT[: 30 + k], SamplingParams(16, ignore_eos=True, adapter=name))
        for k, name in enumerate(adapters)
    ]
    found: list[list[int]] = [[] for _ in adapters]
    for event in run_requests(core, requests):
        found[int(event.request_id)].append(event.token_id)
    return found


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    folder = tmp_path_factory.mktemp("adapters")
    given = tuple(
        (name, str(write_adapter(folder / name, tensors))) for name, tensors in ADAPTERS.items()
    )
    return make_runner(computation=Computation(device="cpu", adapters=given))


def test_adapters_in_one_batch_are_the_merged_models(adapted: Runner) -> None:
    names = ["wide", None, "narrow", "wide", None, "narrow"]
    together = answers(core_over(adapted), names)
    models: dict[str | None, Runner] = {None: make_runner()}
    for name in ADAPTERS:
        models[name] = make_runner(partial(merged, name))
    for place, own in enumerate(names):
        alone = answers(core_over(models[own]), [None] * (place + 1))[place]
        assert together[place] == alone, (place, own)
    assert len({tuple(tokens[:8]) for tokens in together[:3]}) == 3


def test_prompts_of_different_adapters_share_no_block(adapted: Runner) -> None:
    core = core_over(adapted)
    first = answers(core, ["wide"])
    cached: dict[str, int] = {}
    for request_id, name in (("x", "narrow"), ("y", None), ("z", "wide")):
        params = SamplingParams(16, ignore_eos=True, adapter=name)
        for event in run_requests(core, [(0.0, request_id, PROMPT[:30], params)]):
            cached[request_id] = event.cached_tokens
            if request_id == "z":
                assert event.token_id == first[0].pop(0)
    assert cached == {"x": 0, "y": 0, "z": 16}


def test_a_core_names_its_adapters(tmp_path: Path) -> None:
    folder = write_adapter(tmp_path, ADAPTERS["narrow"])
    options = ServeOptions(
        shape=MODEL,
        policies=POLICIES,
        computation=Computation(device="cpu", adapters=(("narrow", str(folder)),)),
    )
    assert ServeOptions.from_json(options.as_json()) == options
    assert build_core(options)[1]["adapters"] == ["narrow"]
