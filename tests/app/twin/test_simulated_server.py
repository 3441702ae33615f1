"""The simulator served in real time: what the simulator decides, when it says, behind the API."""

import asyncio
import json
import pickle
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.scenario.policy_options import PolicyOptions
from app.scenario.server_options import ServerOptions
from app.twin.engines import engine_at
from app.twin.real_time import MOST_HANDLING_S, MOST_LATE_S, SPIN_S, StepTimer
from app.twin.simulated_core import Answers, SimulatedCore
from app.twin.simulated_server import SimulatedEngine, simulated_engine
from engine.core.core_loop import CoreLoop
from engine.core.messages import Stop
from engine.core.step_log import MemoryStepLog, read_arrivals, read_step_log
from engine.models.sampling_params import SamplingParams
from engine.models.tokenizer import FIRST_WORD_ID
from loadtest.endpoint import probe
from loadtest.run.client import run_load_test
from policies.batch import BatchShape
from policies.config import PolicyConfig
from policies.registry import build_scheduler
from policies.step_record import StepRecord
from sim.core.simulate import simulate
from sim.experiments.decision_check import check_decisions
from sim.step_times.profile import load_profile
from sim.step_times.step_time import FloatArray, LinearStepTime, StepNoise, StepTime
from tests.support.command import refused, servetwin
from tests.support.core_story import FakeClock, Script, ScriptedInbox, add
from tests.support.live_server import wait_until
from tests.support.paths import ROOT
from workloads.errors import EngineError
from workloads.request import Request
from workloads.trace import Trace

pytest.importorskip("uvicorn")

READING_S = 2.0**-16
"""What a look at the clock costs: the core's own work between two steps is a few of them."""
STEP_TIME = LinearStepTime.of(
    {
        "constant": 0.004,
        "rows_from_0": 0.0003,
        "decode_context_tokens": 1e-6,
        "swapped_tokens": 1e-5,
    }
)
NOISE = np.linspace(0.7, 1.3, 31)


class TickingClock(FakeClock):
    """Every reading takes a little while, and every sleep is a little too long.

    It ticks as ``engine.core.clock.CoreClock`` does, so that sums of its times are exact.
    """

    def __call__(self) -> float:
        self.now_s = ceil((self.now_s + READING_S) * 2**30) / 2**30
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds + SPIN_S / 2


BASE = PolicyConfig(
    kv_tokens=192, block_tokens=8, max_model_len=96, max_seqs=8, token_budget=24, wait_limit_s=0.01
)
POLICIES = {
    "continuous": BASE,
    "chunked": replace(BASE, batching="chunked"),
    "prefill-first": replace(BASE, batching="prefill-first"),
    "insertion": replace(BASE, batching="insertion"),
    "static": replace(BASE, batching="static", kv="contiguous"),
    "prefix": replace(BASE, prefix_cache=True),
    # what the bundled engine cannot do
    "swap": replace(BASE, preemption="swap", host_kv_tokens=512),
    "host-tier": replace(BASE, prefix_cache=True, host_cache_tokens=512),
    "windowed": replace(BASE, kv="windowed", kv_window_tokens=32, kv_window_share=0.5),
}
BURSTS_S = (0.0, 50.0, 100.0)
"""A burst comes to an idle server."""


def shapes(seed: int) -> list[tuple[float, int, int]]:
    """(arrival, prompt, output) of three bursts of twelve."""
    rng = np.random.default_rng(seed)
    prompts, outputs = rng.integers(4, 50, 36).tolist(), rng.integers(1, 40, 36).tolist()
    arrivals_s = np.repeat(BURSTS_S, 12).tolist()
    return list(zip(arrivals_s, prompts, outputs, strict=True))


def served(config: PolicyConfig, step_time: StepTime, script: Script) -> MemoryStepLog:
    """The log of a core that serves on a clock of its own."""
    clock, log = TickingClock(), MemoryStepLog()
    core = SimulatedCore(
        build_scheduler(config),
        Answers(vocab_size=1000),
        step_time,
        StepNoise(NOISE, np.random.default_rng(0)),
        clock=clock,
        prefix_cache=config.prefix_cache,
        log=log,
        sleep=clock.sleep,
    )
    inbox = ScriptedInbox(clock, [*script, (1000.0, Stop())])
    CoreLoop(core, inbox, lambda update: None).run()
    return log


def simulated(config: PolicyConfig, step_time: StepTime, asked: list[Request]) -> list[StepRecord]:
    noise = StepNoise(NOISE, np.random.default_rng(0))
    scheduler = build_scheduler(config)
    return simulate(asked, scheduler, step_time, noise=noise, keep_records=True).records


class ByLongestContext:
    """A step-time model that asks for every context."""

    wants_contexts = True

    def seconds(self, shape: BatchShape, steps: int = 1) -> FloatArray:
        longest = max(shape.decode_contexts, default=0)
        return np.full(steps, 0.003 + 1e-5 * longest + 1e-5 * shape.rows)


@pytest.mark.parametrize("step_time", [STEP_TIME, ByLongestContext()], ids=["affine", "contexts"])
@pytest.mark.parametrize("name", ["continuous", "chunked", "prefill-first", "swap", "windowed"])
def test_it_decides_what_the_simulator_decides_when_the_simulator_does(
    name: str, step_time: StepTime
) -> None:
    config, asked = POLICIES[name], shapes(seed=1)
    script = [(at_s, add(f"r{i}", p, o)) for i, (at_s, p, o) in enumerate(asked)]
    log = served(config, step_time, script)
    records = simulated(
        config, step_time, [Request(f"r{i}", *shape) for i, shape in enumerate(asked)]
    )
    assert [r.decisions() for r in log.records] == [r.decisions() for r in records]
    assert len(records) > 150
    assert any(record.waiting for record in records)
    assert any(record.preempted for record in records)
    for real, ideal in zip(log.records, records, strict=True):
        assert real.idle_before == ideal.idle_before
        # of hundreds of steps, each decided a few readings after the one before has ended
        assert abs(real.now_s - ideal.now_s) <= 6 * READING_S, (real.step, ideal.step)


@pytest.mark.parametrize("name", POLICIES)
def test_its_own_times_replayed_give_the_identical_batches(name: str) -> None:
    rng = np.random.default_rng(7)
    arrivals_s = np.cumsum(rng.exponential(0.02, 36)).tolist()
    script: list[tuple[float, Any]] = []
    for i, (at_s, (_, p, o)) in enumerate(zip(arrivals_s, shapes(seed=2), strict=True)):
        script.append((at_s, add(f"r{i}", p, o)))
    config = POLICIES[name]
    log = served(config, STEP_TIME, script)
    decision_check = check_decisions(log.arrivals, config, log.records)
    assert decision_check.identical, (
        decision_check.agreeing,
        decision_check.engine,
        decision_check.simulator,
    )
    assert decision_check.steps == len(log.records) > 100
    assert any(record.hits for record in log.records) == config.prefix_cache
    assert any(record.waiting for record in log.records)


def test_a_late_step_is_made_up_for_and_a_stall_is_not(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()

    def sleep(seconds: float) -> None:
        clock.now_s += seconds + SPIN_S

    timer = StepTimer(clock, sleep)
    ends = []
    for disturbance_s in (0.0, 0.05, 0.0, 2 * MOST_LATE_S, 0.0, 2 * MOST_LATE_S, 0.0):
        clock.now_s += disturbance_s
        timer.begin(clock.now_s)
        timer.wait(1.0)
        ends.append(clock.now_s)
    early = MOST_HANDLING_S  # by what was taken for the core's work
    # 0.05 s late: the steps after it end when they would have; a stall moves all that follow
    expected = [1.0, 2.0 - early, 3.0, 4.2 - early, 5.2, 6.4 - early, 7.4]
    assert ends == pytest.approx(expected, abs=1e-9)
    (warning,) = caplog.messages
    assert warning.startswith("this machine is too slow or too busy")


def test_after_a_rest_a_step_begins_when_it_is_decided() -> None:
    clock = FakeClock()
    timer = StepTimer(
        clock, lambda seconds: setattr(clock, "now_s", clock.now_s + seconds + SPIN_S)
    )
    timer.begin(0.0)
    timer.wait(1.0)
    timer.rest()
    clock.now_s = 1.05
    timer.begin(1.05)
    timer.wait(1.0)
    assert clock.now_s == pytest.approx(2.05)


@given(
    prompt=st.lists(st.integers(0, 999), min_size=1, max_size=50),
    seed=st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
)
def test_an_answer_depends_on_the_prompt_and_the_seeds(prompt: list[int], seed: int | None) -> None:
    def answer(server_seed: int, prompt: list[int], seed: int | None) -> list[int]:
        answers = Answers(vocab_size=1000, seed=server_seed)
        begun = answers.begin(prompt, SamplingParams(12, seed=seed))
        return [answers.next_token(begun) for _ in range(12)]

    tokens = answer(0, prompt, seed)
    assert tokens == answer(0, prompt, seed)
    assert all(FIRST_WORD_ID <= token < 1000 for token in tokens)
    others = [answer(1, prompt, seed), answer(0, [*prompt, 1], seed), answer(0, prompt, 3)]
    assert seed == 3 or tokens not in others


def engine(policies: PolicyOptions | None = None, **server: Any) -> SimulatedEngine:
    return simulated_engine(ServerOptions(**server), policies or PolicyOptions())


def test_the_core_process_needs_no_torch() -> None:
    pickled = pickle.dumps(engine(profiles=["base-cpu"]).build)
    code = (
        "import pickle, sys; core, facts = pickle.load(sys.stdin.buffer)();"
        "print(facts['model'], facts['vocab_size'], 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, input=pickled, capture_output=True, check=True
    )
    assert done.stdout.decode().strip() == "base 32000 False"


@pytest.mark.parametrize(
    "server",
    [
        {"profiles": ["llama-3-8b-h100"]},
        {"model": "llama-3-8b", "hardware": "h100"},
        {"model": "llama-3-8b", "hardware": "h100", "techniques": ("tensor-parallel:ways=2",)},
        {"model": "mistral-7b", "hardware": "h100"},
    ],
    ids=str,
)
def test_every_server_model_reaches_the_core_as_it_is(server: dict[str, Any]) -> None:
    there = pickle.loads(pickle.dumps(engine(**server)))
    base = ServerOptions(**server).base().profile
    shape = BatchShape(3, 900, 3, ((0, 100), (50, 20)), decode_contexts=(200, 300, 400))
    layout = build_scheduler(there.policies).memory.layout
    expected = base.step_time(layout).model().seconds(shape, 2)
    assert there.step_time.seconds(shape, 2).tolist() == expected.tolist()
    assert there.policies == base.policy_config()
    assert there.runner["simulated"] == base.describe()
    assert there.model == (server.get("model") or "llama-3-8b")


def test_a_technique_of_the_scheduler_is_served_too() -> None:
    there = engine(model="llama-3-8b", hardware="h100", techniques=("chunked-prefill",))
    assert there.policies.batching == "chunked"


@pytest.mark.parametrize(
    ("technique", "reason"),
    [("speculative", "one token of a sequence"), ("prefill-decode-split", "several servers")],
)
def test_a_technique_that_one_core_cannot_serve_is_refused(technique: str, reason: str) -> None:
    with pytest.raises(EngineError, match=reason):
        engine(model="llama-2-7b", hardware="h100", techniques=(technique,))


def test_policy_options_are_laid_over_those_of_the_profile() -> None:
    given_ = PolicyOptions(max_seqs=4, settings=("preemption=swap", "host_kv_tokens=4096"))
    config = engine(given_, profiles=["base-cpu"]).policies
    profile = load_profile("base-cpu").policy_config()
    assert config == replace(profile, max_seqs=4, preemption="swap", host_kv_tokens=4096)


@contextmanager
def serving(*options: object) -> Iterator[str]:
    """``servetwin serve`` as people start it, for as long as the block lasts; its URL."""
    command = [sys.executable, "-m", "app.cli", "serve", "--port", "0", *map(str, options)]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("serving a simulated "), process.communicate()[1]
            yield line.split(" at ")[1].split()[0].removesuffix("/v1")
        finally:
            process.terminate()
            output, errors = process.communicate(timeout=20)
            assert (process.returncode, output) == (0, "")
            assert "Traceback" not in errors


def test_a_load_test_against_it_and_law_5_on_its_step_log(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    rng = np.random.default_rng(3)
    arrivals_s = np.cumsum(rng.exponential(0.03, 20)).tolist()
    lengths = zip(rng.integers(17, 60, 20).tolist(), rng.integers(1, 12, 20).tolist(), strict=True)
    requests = [
        Request(f"q{i}", at_s, prompt, output, (i % 3,), 16)
        for i, (at_s, (prompt, output)) in enumerate(zip(arrivals_s, lengths, strict=True))
    ]
    trace = Trace(tuple(requests), "made up")
    options = ("--simulated", "base-cpu", "--prefix-cache", "--max-seqs", 4, "--step-log", path)
    with serving(*options) as url:
        live = engine_at(url)  # what ``verify --url`` does
        assert live.step_log == path
        run = run_load_test(probe(url), trace)
        with httpx.Client(trust_env=False, timeout=10) as client:
            metrics = client.get(f"{url}/metrics").text
    assert Counter(run.requests["status"]) == {"finished": 20}
    assert run.requests["output_tokens"].tolist() == [r.output_tokens for r in trace]
    assert run.requests["prompt_tokens"].tolist() == [r.prompt_tokens for r in trace]
    assert f"{float(run.requests['output_tokens'].sum())}" in metrics

    header, log = read_step_log(path)
    config = PolicyConfig(**header["policies"])
    assert (config.max_seqs, config.prefix_cache) == (4, True)
    decision_check = check_decisions(read_arrivals(path), config, log)
    assert decision_check.identical
    assert decision_check.steps == len(log) > 20
    assert any(step.hits for step in log)
    assert any(step.waiting for step in log)


def test_chat_streams_stop_strings_refusals_and_cancellations() -> None:
    with (
        serving("--simulated", "base-cpu", "--max-model-len", 128, "--max-seqs", 2) as url,
        httpx.Client(trust_env=False, timeout=20, base_url=url) as client,
    ):
        body: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 6}
        first = client.post("/v1/chat/completions", json=body).json()
        text = first["choices"][0]["message"]["content"]
        assert (first["usage"]["completion_tokens"], len(text.split())) == (6, 6)
        with client.stream("POST", "/v1/chat/completions", json=body | {"stream": True}) as answer:
            lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
        assert lines.pop() == "[DONE]"
        deltas = [json.loads(line)["choices"][0]["delta"]["content"] for line in lines]
        assert "".join(deltas) == text
        third = text.split()[2]
        stopped = client.post("/v1/chat/completions", json=body | {"stop": f" {third}"}).json()
        assert stopped["choices"][0]["finish_reason"] == "stop"
        assert stopped["choices"][0]["message"]["content"].split() == text.split()[:2]
        refusal = client.post("/v1/completions", json={"prompt": [300] * 120, "max_tokens": 20})
        assert refusal.status_code == 400
        assert refusal.json()["error"]["code"] == "context_length_exceeded"
        asyncio.run(_leave_early(url))
        again = client.post("/v1/chat/completions", json=body).json()
        assert again["choices"][0]["message"]["content"] == text
        aborted = 'request_success_total{finished_reason="abort",model_name="base"} 1.0'
        wait_until(lambda: aborted in client.get("/metrics").text)


async def _leave_early(url: str) -> None:
    """Ask for many tokens, and go after the first."""
    body = {"prompt": [300], "max_tokens": 120, "stream": True}
    async with (
        httpx.AsyncClient(trust_env=False, base_url=url) as client,
        client.stream("POST", "/v1/completions", json=body) as answer,
    ):
        async for _ in answer.aiter_lines():
            break


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--simulated", "base-cpuu"], "no profile 'base-cpuu'; did you mean 'base-cpu'?"),
        (["--simulated", "gone.json"], "gone.json: the profile cannot be read"),
        (["--simulated", "base-cpu", "--model", "tiny"], "--hardware: --model and --hardware go"),
        (["--model", "base", "--hardware", "h1000"], "no device 'h1000'; did you mean 'h100'?"),
        (["--hardware", "h100"], "--model: --model and --hardware go together"),
        (["--technique", "int4"], "--technique: needs --model and --hardware"),
        (["--simulated", "base-cpu", "--threads", "2"], "--device, --dtype, --threads: say how"),
        (["--simulated", "base-cpu", "--batching", "speculative"], "batching 'speculative' cannot"),
        (
            ["--simulated", "base-cpu", "--batching", "statik"],
            "unknown scheduler 'statik'",
        ),
        (["--simulated", "base-cpu", "--set", "victim=x"], "victim: 'x' is not possible"),
    ],
)
def test_bad_input_is_one_line(options: list[str], message: str) -> None:
    assert refused("serve", *options).startswith(f"servetwin: {message}")


def test_a_layout_that_was_not_measured(tmp_path: Path) -> None:
    profile = load_profile("base-cpu")
    paged = profile.model_copy(update={"layouts": {"paged": profile.layouts["paged"]}})
    paged.save(tmp_path / "paged.json")
    line = refused("serve", "--simulated", tmp_path / "paged.json", "--kv", "contiguous")
    assert line == (
        "servetwin: profile base-cpu: contiguous KV memory was not measured, only paged; calibrate "
        "that layout"
    )


@pytest.mark.parametrize("wrong", ["port", "step log"])
def test_what_only_the_server_can_find_out(wrong: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options = ["--port", port] if wrong == "port" else ["--port", 0, "--step-log", "/nowhere/x"]
        done = servetwin("serve", "--simulated", "base-cpu", *options)
    expected = {
        "port": f"servetwin: cannot listen on 127.0.0.1:{port}: Address already in use",
        "step log": "servetwin: step log /nowhere/x: No such file or directory",
    }
    assert (done.code, done.out) == (2, "")
    starting, error = done.err.splitlines()
    assert starting == "starting a simulated base with continuous+paged"
    assert error == expected[wrong]
