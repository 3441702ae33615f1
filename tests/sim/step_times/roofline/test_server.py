"""A roofline as a server: memory, draws of its efficiencies, and the options of a command."""

import pickle
from dataclasses import replace
from math import ceil
from pathlib import Path

import numpy as np
import pytest

from servetwin.policies.batch import BatchShape
from servetwin.sim.experiments.predict import predict
from servetwin.sim.experiments.scenario import replicate
from servetwin.sim.step_times.roofline.efficiency import Efficiency
from servetwin.sim.step_times.roofline.server import RooflineServer
from servetwin.sim.techniques.setup import Setup
from servetwin.workloads.readers.native import write_trace
from servetwin.workloads.trace import Trace
from tests.support.checked import request
from tests.support.command import refused, servetwin
from tests.support.rooflines import REAL, trace


def test_memory_is_what_weights_runtime_and_the_largest_step_leave() -> None:
    """256 of the 2,048 rows draw from 32,000 logits, in 20 bytes each and whole segments."""
    step = ceil(256 * 32_000 * 20 / 2**21) * 2**21
    room = 80e9 - 0.5e9 - 2 * 6_738_149_376 - step
    assert RooflineServer(REAL).policy_config().kv_tokens == int(room / 524_288)


def test_step_times_are_remembered_and_do_not_travel() -> None:
    server = RooflineServer(REAL)
    before = pickle.dumps(server)
    assert server.model() is server.model()
    server.model().seconds(BatchShape(4, 400, 4))
    assert pickle.dumps(server) == before
    assert pickle.loads(before) == server


def test_intervals_come_from_the_spread_of_efficiencies() -> None:
    certain = Efficiency(compute_spread=0, memory_spread=0, overhead_spread=0)
    for deployment, sure in ((REAL, False), (replace(REAL, efficiency=certain), True)):
        scenario = Setup.of(deployment).scenario()
        assert scenario.is_certain() is sure
        found = predict(trace(), scenario.policies, scenario.profile, replications=8).interval(
            "tpot_s.mean"
        )
        assert found is not None
        assert (found.high - found.low < 1e-12) is sure


def test_both_sides_of_a_comparison_draw_the_same_engine() -> None:
    base = Setup.of(REAL).scenario()
    sides = [base, replace(base, policies=replace(base.policies, batching="chunked"))]
    seed = np.random.SeedSequence(3)
    first = [
        replicate(
            Trace((request("a", prompt=64, output=3),), "one"), s, seed_again(seed), draw=True
        )
        for s in sides
    ]
    assert first[0].requests["e2e_s"].tolist() == first[1].requests["e2e_s"].tolist()


def seed_again(seed: np.random.SeedSequence) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed.entropy, spawn_key=seed.spawn_key)


@pytest.fixture
def small_trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    write_trace(trace(20), path)
    return path


def test_replay_on_a_roofline_says_what_it_rests_on(small_trace: Path) -> None:
    server = ("--model", "llama-2-7b", "--hardware", "a100-80gb")
    done = servetwin("replay", small_trace, *server, "--technique", "tensor-parallel")
    assert done.code == 0
    assert (
        "roofline llama-2-7b on 2 x a100-80gb (computed from data sheets)\n  assumed: 61% of FLOP/s"
        in done.out
    )
    assert "rests on   computed from data sheets 100.0 % of simulated time" in done.out
    assert max(map(len, done.out.splitlines())) <= 100


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--model", "llama-2-7b"), "--gpu: --model and --gpu go together"),
        (("--hardware", "h100"), "--gpu: needs --model"),
        (("--technique", "tensor-parallel"), "--technique: needs --model and --gpu"),
        (("--model", "llama-2-7c", "--hardware", "h100"), "did you mean 'llama-2-7b'"),
        (("--model", "llama-2-7b", "--hardware", "h1000"), "did you mean 'h100'"),
        (
            ("--model", "llama-2-7b", "--hardware", "h100", "--efficiency", "compute=2"),
            "efficiency: compute: 2 is not possible; it must be above 0 and at most 1",
        ),
        (
            ("--model", "llama-2-7b", "--hardware", "h100", "--efficiency", "comput=1"),
            "efficiency: unknown 'comput'; did you mean 'compute'",
        ),
        (
            ("--model", "llama-2-7b", "--hardware", "h100", "--profile", "base-cpu"),
            "--profile: either a profile, or --model and --gpu",
        ),
        (
            (
                "--model",
                "llama-2-7b",
                "--hardware",
                "h100",
                "--technique",
                "tensor-parallel:ways=3",
            ),
            "3 ways do not divide the 32 heads",
        ),
        (("--where", "a=b"), "--where: chooses rows"),
    ],
)
def test_server_options_that_do_not_fit(
    small_trace: Path, options: tuple[str, ...], message: str
) -> None:
    assert message in refused("replay", small_trace, *options)
