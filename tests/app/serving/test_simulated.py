"""From a server model to the core that is served."""

import pickle
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from servetwin.app.scenario.options.deployment import Deployment
from servetwin.app.scenario.options.policy import PolicyOptions
from servetwin.app.serving.simulated import SimulatedEngine, simulated_engine
from servetwin.policies.batch import BatchShape
from servetwin.policies.build import build_scheduler
from servetwin.sim.step_times.profile import load_profile
from servetwin.workloads.errors import EngineError
from tests.support.paths import ROOT, SHEET_PROFILE

pytest.importorskip("uvicorn")


def engine(policies: PolicyOptions | None = None, **server: Any) -> SimulatedEngine:
    return simulated_engine(Deployment(**server), policies or PolicyOptions())


def test_the_core_process_needs_no_torch() -> None:
    pickled = pickle.dumps(engine(profile=("base-cpu",)).build)
    code = (
        "import pickle, sys; from servetwin.engine.core.core import CoreClock;"
        "core, facts = pickle.load(sys.stdin.buffer)(CoreClock());"
        "print(facts['model'], facts['vocab_size'], 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, input=pickled, capture_output=True, check=True
    )
    assert done.stdout.decode().strip() == "base 32000 False"


@pytest.mark.parametrize(
    "server",
    [
        {"profile": (SHEET_PROFILE,)},
        {"model": "llama-3-8b", "gpu": "h100"},
        {"model": "llama-3-8b", "gpu": "h100", "techniques": ("tensor-parallel:ways=2",)},
        {"model": "mistral-7b", "gpu": "h100"},
    ],
    ids=str,
)
def test_every_server_model_reaches_the_core_as_it_is(server: dict[str, Any]) -> None:
    there = pickle.loads(pickle.dumps(engine(**server)))
    base = Deployment(**server).scenario().profile
    shape = BatchShape(3, 900, 3, ((0, 100), (50, 20)), decode_contexts=(200, 300, 400))
    layout = build_scheduler(there.policies).memory.layout
    expected = base.step_time(layout).model().seconds(shape, 2)
    assert there.step_time.seconds(shape, 2).tolist() == expected.tolist()
    assert there.policies == base.policy_config()
    assert there.runner["simulated"] == base.describe()
    assert there.model == (server.get("model") or "llama-3-8b")


def test_a_technique_of_the_scheduler_is_served_too() -> None:
    there = engine(model="llama-3-8b", gpu="h100", techniques=("chunked-prefill",))
    assert there.policies.batching == "chunked"


@pytest.mark.parametrize(
    ("technique", "reason"),
    [("speculative", "one token of a sequence"), ("prefill-decode-split", "several servers")],
)
def test_a_technique_that_one_core_cannot_serve_is_refused(technique: str, reason: str) -> None:
    with pytest.raises(EngineError, match=reason):
        engine(model="llama-2-7b", gpu="h100", techniques=(technique,))


def test_policy_options_are_laid_over_those_of_the_profile() -> None:
    given_ = PolicyOptions(max_seqs=4, settings=("preemption=swap", "host_kv_tokens=4096"))
    config = engine(given_, profile=("base-cpu",)).policies
    profile = load_profile("base-cpu").policy_config()
    assert config == replace(profile, max_seqs=4, preemption="swap", host_kv_tokens=4096)
