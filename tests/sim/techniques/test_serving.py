"""Serving: batching, paging, chunks, prefixes, samples, split phases; metrics, frameworks."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from policies.config import PolicyConfig
from policies.config import PrefixIndex as PrefixIndexName
from policies.presets import find_preset
from policies.registry import build_scheduler
from policies.sequence import Sequence as ServedSequence
from sim.core.simulate import simulate
from sim.experiments.scenario import replicate
from sim.records.metrics import derive, figure, summarize
from sim.records.run import Run
from sim.shapes.catalogue import find_hardware, find_model
from sim.step_times.roofline.deployment import IDEAL_KERNELS, Deployment
from sim.step_times.roofline.efficiency import DEFAULT, IDEAL
from sim.step_times.step_time import LinearStepTime
from sim.techniques.effects import Laboratory, compare
from sim.techniques.experiment import Experiment
from sim.techniques.memory import KVCache
from sim.techniques.parallel import TensorParallel
from sim.techniques.registry import TECHNIQUES
from sim.techniques.serving import (
    ChunkedPrefill,
    ContinuousBatching,
    CopyOnWrite,
    DynamicInsertion,
    PagedAttention,
    PrefillDecodeSplit,
    PrefixCache,
)
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique
from sim.theory import copy_on_write, exponential_slot_efficiency
from tests.support.checked import CheckedScheduler, request
from tests.support.paths import DOCS
from tests.support.technique_formulas import (
    chunk_passes,
    kv_tokens_read,
    shared_prefix_hit_rate,
    token_passes,
)
from tests.support.textbook import Phases
from workloads.errors import PolicyError
from workloads.generators.arrivals import PoissonArrivals
from workloads.generators.generate import WorkloadSpec, generate
from workloads.generators.lengths import IndependentLengths, LognormalTokens
from workloads.request import Request
from workloads.trace import Trace

SERVING: list[Technique] = [
    ContinuousBatching(),
    DynamicInsertion(),
    PagedAttention(),
    ChunkedPrefill(),
    PrefixCache(),
    CopyOnWrite(),
    PrefillDecodeSplit(),
]
ONE_SECOND = LinearStepTime.of({"constant": 1.0})
LLAMA, A100 = find_model("llama-2-7b"), find_hardware("a100-80gb")
REAL = Setup.of(Deployment(LLAMA, A100))
SHEET = Setup.of(Deployment(LLAMA, A100, IDEAL, kernels=IDEAL_KERNELS))
"""Llama-2-7B on an A100, as assumed and as the data sheet says."""


def seeds(count: int) -> list[np.random.SeedSequence]:
    return np.random.SeedSequence(0).spawn(count)


def simulated(setup: Setup, requests: Sequence[Request], seed: int = 0) -> Run:
    trace = Trace(tuple(requests), "test")
    return replicate(trace, setup.scenario(), np.random.SeedSequence(seed))


def pair(technique: Technique, base: Setup = REAL) -> tuple[Setup, Setup]:
    """(without, with)."""
    without = technique.off(base)
    return without, technique.apply(without)


def by_name(technique: Technique) -> str:
    return technique.name


# --- metrics ----------------------------------------------------------------------------------


def test_the_metrics_of_three_requests_worked_out_by_hand() -> None:
    stamps = pd.DataFrame(
        {
            "status": "finished",
            "scheduled_s": [0.0, 1.0, 2.0],
            "first_token_s": [0.5, 2.0, 2.5],
            "last_token_s": [4.5, 3.0, 5.5],
            "prompt_tokens": 1,
            "output_tokens": [5, 3, 4],
            "cached_tokens": 0,
            "preemptions": 0,
        }
    )
    summary = summarize(derive(stamps))
    printed = {
        "ttft_s.mean": "0.666667",
        "output_throughput_tokens_per_s": "2.181818",
        "request_tps.mean": "1.251323",
        "decode_tps.mean": "1.333333",
    }
    assert {name: f"{figure(summary, name):.6f}" for name in printed} == printed
    single = summarize(derive(stamps.assign(output_tokens=1, last_token_s=stamps.first_token_s)))
    assert single["decode_tps"]["count"] == 0, "one token has no decode TPS"


# --- no token changes -------------------------------------------------------------------------

EXACT = [name for name, t in TECHNIQUES.items() if t.kind == "system" or t.lossless]


def few(technique: Technique) -> list[Request]:
    """A few requests of the load under which a technique is judged."""
    experiment = technique.experiment or Experiment()
    return list(replace(experiment, saturated=16).all_at_once(seed=1))


def changed_outputs(technique: Technique) -> tuple[list[int], list[int]] | None:
    """Output tokens without and with it, on the first model for which it makes sense."""
    hardware = find_hardware("b200")
    for model in ("llama-2-7b", "mixtral-8x7b", "mamba-2.8b", "deepseek-v2"):
        base = Setup.of(Deployment(find_model(model), hardware))
        try:
            runs = [simulated(setup, few(technique)) for setup in pair(technique, base)]
        except PolicyError:
            continue
        for run in runs:
            assert set(run.requests["status"]) == {"finished"}
        before, after = (run.requests["output_tokens"].tolist() for run in runs)
        return before, after
    return None


@pytest.mark.parametrize("name", EXACT)
def test_no_lossless_or_system_technique_changes_a_token_count(name: str) -> None:
    outputs = changed_outputs(TECHNIQUES[name]())
    assert outputs is not None, "it makes sense for some model"
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("technique", SERVING, ids=by_name)
def test_serving_techniques_change_no_token_count(technique: Technique) -> None:
    assert technique.kind == "system"
    assert technique.lossless
    outputs = changed_outputs(technique)
    assert outputs is not None
    assert outputs[0] == outputs[1]


# --- batching ---------------------------------------------------------------------------------

SHORT = Experiment(prompt_tokens=64, output_tokens=192)


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_from_arrival_continuous_batching_shortens_the_first_token_by_far(load: float) -> None:
    """Against static batches that sustain the load: nobody waits for a batch to end any more."""
    effect = Laboratory(0, 3).effect(ContinuousBatching(), REAL, replace(SHORT, load=load))
    loaded = effect.of("ttft_loaded")
    assert loaded.sign == "+"
    assert loaded.high is not None
    assert loaded.high < -0.9, "ten times as soon"
    assert effect.of("throughput").sign == "+"


def test_from_admission_continuous_batching_costs_first_tokens_and_speed() -> None:
    """The table's experiment: a first token shares its step with the decodes of a large batch."""
    technique = ContinuousBatching()
    effect = Laboratory().effect(technique, REAL, technique.experiment or SHORT)
    signs = {name: effect.of(name).sign for name in ("ttft_from_admission", "tps_loaded")}
    assert signs == {"ttft_from_admission": "-", "tps_loaded": "-"}
    assert effect.of("ttft_loaded").sign == "+"
    assert effect.of("throughput").sign == "+"


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_waiting_for_the_running_step_costs_more_than_the_prompts_of_a_static_batch(
    load: float,
) -> None:
    """Two padded prompts of 64 tokens take one pass over the weights, as one of them does.

    A slot is always free, so continuous batching admits at arrival; a static batch when it starts.
    """
    static, continuous = pair(ContinuousBatching(static_batch=2), SHEET)
    firsts, speeds = [], []
    for seed in range(4):
        run = simulated(static, list(SHORT.all_at_once(seed)))
        sustained = run.summary()["request_throughput_per_s"]
        trace = list(replace(SHORT, load=load).steady(seed, sustained))
        a, b = simulated(static, trace).requests, simulated(continuous, trace)
        assert b.steps["running"].max() < continuous.policies.max_seqs
        firsts.append((float((a["ttft_s"] - a["queue_s"]).mean()), b.requests["ttft_s"].mean()))
        speeds.append((float((1 / a["tpot_s"]).mean()), float((1 / b.requests["tpot_s"]).mean())))
    first = compare("ttft_from_admission", *zip(*firsts, strict=True))
    assert first.sign == "-"
    slower = compare("tps_loaded", *zip(*speeds, strict=True))
    assert slower.high is not None
    assert slower.high < 0


def test_orca_is_continuous_batching() -> None:
    assert find_preset("orca").policies["batching"] == "continuous"
    assert ContinuousBatching().apply(REAL).policies.batching == "continuous"


@given(st.lists(st.integers(1, 60), min_size=1, max_size=60), st.integers(1, 8))
def test_insertion_gains_no_more_than_static_batches_waste(lengths: list[int], slots: int) -> None:
    """Every batch lasts as long as its longest: sum of max over mean of slots, to the step."""
    static_s, inserted_s = insertion_spans_s(lengths, slots)
    batches = [lengths[i : i + slots] for i in range(0, len(lengths), slots)]
    assert static_s == sum(map(max, batches))
    assert sum(lengths) / slots <= inserted_s <= static_s


@pytest.mark.parametrize("slots", [2, 8])
def test_insertion_gains_one_over_the_static_efficiency(slots: int) -> None:
    rng = np.random.default_rng(3)
    lengths = np.ceil(rng.exponential(200, 4000)).astype(int).tolist()
    static_s, inserted_s = insertion_spans_s(lengths, slots)
    assert static_s / inserted_s == pytest.approx(1 / exponential_slot_efficiency(slots), rel=0.03)


def insertion_spans_s(lengths: list[int], slots: int) -> tuple[float, float]:
    """Seconds, where every step takes one, until all is answered: (static, inserted)."""
    requests = [request(str(i), 0.0, 1, length) for i, length in enumerate(lengths)]
    spans = []
    for setup in pair(DynamicInsertion(slots=slots)):
        config = replace(setup.policies, kv_tokens=1 << 30, max_model_len=1 << 16, wait_limit_s=0)
        run = simulate(requests, build_scheduler(config), ONE_SECOND)
        assert run.steps["running"].max() <= slots
        spans.append(float(run.requests["last_token_s"].max()))
    return spans[0], spans[1]


def test_four_prompt_tokens_and_four_answers_take_four_passes_and_seven_entries() -> None:
    """One context pass gives the first token; the last one that is sampled is never written."""
    config = PolicyConfig(kv_tokens=16, block_tokens=1, max_seqs=1)
    scheduler = build_scheduler(config)
    seq = ServedSequence("photo", 0.0, prompt_tokens=4, max_tokens=4)
    assert scheduler.add(seq) is None
    answer = iter("吴彦祖$")
    passes: list[tuple[int, int, int, str]] = []
    while batch := scheduler.schedule(float(len(passes))):
        (entry,) = batch.entries
        start, rows = entry.start, entry.rows
        scheduler.complete(batch)
        passes.append((start, rows, seq.computed_tokens, next(answer)))
    assert passes == [(0, 4, 4, "吴"), (4, 1, 5, "彦"), (5, 1, 6, "祖"), (6, 1, 7, "$")]
    assert seq.finished
    asked = [request("photo", 0.0, 4, 4)]
    run = simulate(asked, CheckedScheduler(config), ONE_SECOND, keep_records=True)
    assert [(r.now_s, *r.entries) for r in run.records] == [
        (0.0, ("photo", 0, 4, 0)),
        (1.0, ("photo", 4, 1, 0)),
        (2.0, ("photo", 5, 1, 0)),
        (3.0, ("photo", 6, 1, 0)),
    ]
    phases = Phases(LLAMA, batch=1, prompt_tokens=4, output_tokens=4)
    assert 1 + phases.generation_passes == len(passes)
    assert phases.kv_entries == seq.computed_tokens


# --- memory -----------------------------------------------------------------------------------


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


@pytest.mark.parametrize("index", ["hash", "radix"])
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


# --- chunked prefill --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "chunk", "passes", "read"),
    [(4096, 512, 8, 18_432), (4096, 4096, 1, 4_096), (1000, 256, 4, 2_536), (3, 512, 1, 3)],
)
def test_a_prompt_in_chunks(prompt: int, chunk: int, passes: int, read: int) -> None:
    setup = ChunkedPrefill(token_budget=chunk).apply(REAL.with_policies(max_seqs=1))
    config = replace(setup.policies, kv_tokens=1 << 20, max_model_len=8192)
    run = simulate(
        [request("a", 0.0, prompt, 1)], CheckedScheduler(config), ONE_SECOND, keep_records=True
    )
    chunks = [(start, rows) for r in run.records for _, start, rows, _ in r.entries]
    assert len(chunks) == chunk_passes(prompt, chunk) == passes
    assert sum(start + rows for start, rows in chunks) == kv_tokens_read(prompt, chunk) == read
    if prompt % chunk == 0:
        assert read == prompt * (prompt + chunk) / (2 * chunk)


PER_ROW = LinearStepTime.of({"constant": 1.0, "rows_from_0": 0.5})
JOBS = st.lists(
    st.tuples(st.floats(0, 60), st.integers(1, 90), st.integers(1, 12)), min_size=1, max_size=12
)


@given(JOBS, st.integers(4, 20))
def test_no_gap_between_tokens_is_longer_than_a_step_of_the_budget(
    jobs: list[tuple[float, int, int]], budget: int
) -> None:
    longest_s = 1 + 0.5 * budget
    without, with_it = pair(ChunkedPrefill(token_budget=budget), REAL.with_policies(max_seqs=4))
    assert all(gap <= longest_s + 1e-6 for gap in token_gaps_s(with_it, jobs))
    assert sum(1 for _ in token_gaps_s(without, jobs)) == sum(m - 1 for _, _, m in jobs)


def test_whole_prompts_stall_the_decodes_longer() -> None:
    jobs = [(0.0, 4, 10), (3.5, 80, 2)]
    without, with_it = pair(ChunkedPrefill(token_budget=16), REAL.with_policies(max_seqs=4))
    assert max(token_gaps_s(with_it, jobs)) == 1 + 0.5 * 16
    assert max(token_gaps_s(without, jobs)) == 1 + 0.5 * 81


def token_gaps_s(setup: Setup, jobs: list[tuple[float, int, int]]) -> Iterator[float]:
    """Seconds between consecutive tokens of each request."""
    ordered = sorted(jobs)
    requests = [request(str(i), *job) for i, job in enumerate(ordered)]
    prompts = {str(i): prompt for i, (_, prompt, _) in enumerate(ordered)}
    run = simulate(requests, CheckedScheduler(setup.policies), PER_ROW, keep_records=True)
    last_s: dict[str, float] = {}
    for record in run.records:
        end_s = record.now_s + record.duration_s
        for name, start, rows, _ in record.entries:
            if start + rows < prompts[name]:
                continue
            if name in last_s:
                yield end_s - last_s[name]
            last_s[name] = end_s


# --- prefill and decode apart -----------------------------------------------------------------

GIB = 2**30


@pytest.mark.parametrize(("layerwise", "share"), [(False, 1), (True, 64)])
def test_a_prompt_of_512_hands_over_more_than_a_gibibyte(layerwise: bool, share: int) -> None:
    """OPT-66B on two A100s a replica: 1.125 GiB a request, 11.25 GiB/s at 10 a second."""
    opt = TensorParallel(ways=2).apply(Setup.of(Deployment(find_model("opt-66b"), A100)))
    split = PrefillDecodeSplit(gb_per_s=GIB / 1e9, latency_us=250, layerwise=layerwise).apply(opt)
    assert 512 * split.server().kv_bytes_per_token() == 1.125 * GIB
    run = simulated(split, [request("a", 0.0, 512, 8)])
    moved = run.handovers.iloc[0]
    transfer_s = moved["transfer_end_s"] - moved["prefill_end_s"]
    assert transfer_s == pytest.approx(1.125 / share + 250e-6, abs=1e-9)


def test_split_or_not_there_are_as_many_servers() -> None:
    without, with_it = pair(PrefillDecodeSplit(prefill_replicas=2, decode_replicas=3))
    assert len(without.scenario().servers()) == len(with_it.scenario().servers()) == 5
    assert not without.cluster.splits
    assert with_it.cluster.splits


def test_prompts_of_others_stall_no_decode_of_a_split_server() -> None:
    """Long prompts beside a long answer: in a pool of its own, it decodes as if alone."""
    asked = [request("long", 0.0, 64, 400)]
    prompts = [request(f"p{i}", 0.5 + 0.2 * i, 3000, 1) for i in range(10)]
    without, with_it = pair(PrefillDecodeSplit())
    alone = simulated(with_it, asked).requests["tpot_s"][0]
    beside = simulated(with_it, [*asked, *prompts]).requests["tpot_s"][0]
    mixed = simulated(without, [*asked, *prompts]).requests["tpot_s"][0]
    assert beside == pytest.approx(alone, rel=1e-6)
    assert mixed > 1.1 * alone


# --- whole servers ----------------------------------------------------------------------------

NAMED = {
    "vllm-v0": ("prefill-first", "paged"),
    "vllm-v1": ("chunked", "paged"),
    "tgi": ("prefill-first", "paged"),
    "llama.cpp": ("chunked", "contiguous"),
    "mlc-llm": ("prefill-first", "paged"),
    "tensorrt-llm": ("continuous", "paged"),
    "deepspeed-fastgen": ("chunked", "paged"),
    "openllm": ("prefill-first", "paged"),
    "fastertransformer": ("static", "contiguous"),
}


@pytest.mark.parametrize("name", NAMED)
def test_a_named_framework_batches_and_keeps_memory_in_its_way(name: str) -> None:
    policies = find_preset(name).policies
    assert (policies["batching"], policies["kv"]) == NAMED[name]


SHAREGPT = IndependentLengths(
    LognormalTokens.from_mean(161, 1.0, max_tokens=1024),
    LognormalTokens.from_mean(338, 0.877, max_tokens=1023),
)
"""Means of Kwon et al. (2023), section 6; log-normal."""
EAGER_LAYER_S = 1 / 25.5 / 32
"""A layer of Llama-7B in eager PyTorch, whatever the device: 25.5 tokens/s, bound by Python
("Accelerating Generative AI II", pytorch.org, 2023)."""
SWAP_SPACE_BYTES = 4 * 2**30
"""vLLM's default; it swaps where a request has several answers, and else recomputes."""


def eager(setup: Setup) -> Setup:
    """As Hugging Face's Transformers ran: layer by layer from Python, nothing fused.

    Keys and values grow by copying: read, written, and read by the attention.
    """
    deployment = setup.deployment
    weights_s = deployment.weight_bytes() / deployment.hardware.memory_bytes_per_s / DEFAULT.memory
    python_s = deployment.model.layer_count * EAGER_LAYER_S
    kernels = replace(
        deployment.kernels, fused=False, flash_attention=False, attention_slowdown=3.0
    )
    overhead_s = max(DEFAULT.overhead_s, python_s - weights_s)
    return setup.with_deployment(
        efficiency=replace(DEFAULT, overhead_s=overhead_s), kernels=kernels
    )


def equal_kernels(setup: Setup) -> Setup:
    """As it is."""
    return setup


def throughput(setup: Setup, requests: Sequence[Request]) -> float:
    """Output tokens per second where all come at once."""
    run = simulated(setup, [replace(r, arrival_s=0.0) for r in requests])
    assert set(run.requests["status"]) == {"finished"}
    return float(run.summary()["output_throughput_tokens_per_s"])


def vllm(base: Setup, answers: int) -> Setup:
    """As in 2023: its preset."""
    imitated = base.with_policies(**find_preset("vllm-v0").policies)
    if answers == 1:
        return imitated
    swap_tokens = int(SWAP_SPACE_BYTES / base.deployment.kv_bytes_per_token())
    return imitated.with_policies(preemption="swap", host_kv_tokens=swap_tokens)


@cache
def gain_over_static(
    model: str, hardware: str, answers: int, plain: Callable[[Setup], Setup]
) -> float:
    """Throughput of a paged server over padded batches in regions of the longest length."""
    base = Setup.of(Deployment(find_model(model), find_hardware(hardware)))
    base = base.with_policies(max_model_len=2048)
    static = base.with_policies(batching="static", kv="contiguous", reservation="max")
    drawn = list(generate(WorkloadSpec(400, PoissonArrivals(1.0), SHAREGPT), 1))
    copies = [replace(r, request_id=f"{r.request_id}/{k}") for r in drawn for k in range(answers)]
    samples = [replace(r, samples=answers) for r in drawn]
    return throughput(vllm(base, answers), samples) / throughput(plain(static), copies)


PAIRS = [("llama-2-7b", "a10g"), ("llama-2-13b", "a100-40gb")]
SERVERS = pytest.mark.parametrize(("model", "hardware"), PAIRS)


@SERVERS
def test_paged_continuous_batching_is_an_order_of_magnitude_above_plain_batches(
    model: str, hardware: str
) -> None:
    """vLLM's launch post: 14 to 24 times; 8.5 to 15, six tenths of it, for three answers."""
    one, three = (gain_over_static(model, hardware, answers, eager) for answers in (1, 3))
    assert 8 < one < 30
    assert 0.6 * 8 < three < one


@SERVERS
def test_batching_and_memory_alone_give_half_an_order(model: str, hardware: str) -> None:
    """Equal kernels: what is left is idle slots, padding, and regions of the longest length."""
    one, three = (gain_over_static(model, hardware, answers, equal_kernels) for answers in (1, 3))
    assert one > three > 10**0.5


# --- what is refused --------------------------------------------------------------------------

MAPPED = [PagedAttention(), PrefixCache(), CopyOnWrite(), PrefillDecodeSplit()]


@pytest.mark.parametrize("technique", MAPPED, ids=by_name)
@pytest.mark.parametrize("model", ["mamba-2.8b", "mistral-7b"])
def test_memory_that_forgets_is_refused(technique: Technique, model: str) -> None:
    with pytest.raises(PolicyError, match=f"{technique.name}: {model} has layers that forget"):
        technique.apply(Setup.of(Deployment(find_model(model), A100)))


@pytest.mark.parametrize("technique", MAPPED, ids=by_name)
def test_without_a_kv_cache_there_is_nothing_to_place(technique: Technique) -> None:
    with pytest.raises(PolicyError, match=f"{technique.name}: without a KV cache"):
        technique.apply(KVCache().off(REAL))


def test_a_comparison_of_shared_samples_beside_a_prefix_cache_is_refused() -> None:
    with pytest.raises(PolicyError, match="share their prompt anyway"):
        CopyOnWrite().off(PrefixCache().apply(REAL))


def test_a_budget_below_the_sequences_of_a_step_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"token_budget: 128 is not possible; .*max_seqs"):
        ChunkedPrefill(token_budget=128).apply(REAL)


def test_a_prefix_cache_on_contiguous_memory_is_refused() -> None:
    with pytest.raises(PolicyError, match="contiguous KV memory cannot share"):
        PrefixCache().apply(PagedAttention().off(REAL))


def test_a_split_server_of_static_batches_is_refused() -> None:
    split = PrefillDecodeSplit().apply(ContinuousBatching().off(REAL))
    with pytest.raises(PolicyError, match="'static' cannot take in prompts"):
        simulated(split, [request("a")])


@pytest.mark.parametrize(
    ("technique", "parameter"),
    [
        (DynamicInsertion, {"slots": 0}),
        (PagedAttention, {"attention_slowdown": -0.1}),
        (PagedAttention, {"reservation": "half"}),
        (PrefixCache, {"index": "list"}),
        (PrefillDecodeSplit, {"gb_per_s": 0}),
    ],
)
def test_impossible_parameters_are_named(
    technique: type[Technique], parameter: dict[str, object]
) -> None:
    with pytest.raises(ValidationError, match=next(iter(parameter))):
        technique(**parameter)


# --- the page ---------------------------------------------------------------------------------

PAGE = (DOCS / "techniques" / "serving.md").read_text()


def rows_under(heading: str) -> list[list[float]]:
    """Rows of numbers in the section of that name."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = re.findall(r"^\|([\d |.,%]+)\|$", section, re.MULTILINE)
    return [[float(re.sub(r"[,% ]", "", cell)) for cell in line.split("|")] for line in lines]


def test_every_serving_technique_has_its_section() -> None:
    headings = re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
    assert {technique.name for technique in SERVING} <= set(headings)


def test_the_page_counts_chunks_as_the_code_does() -> None:
    rows = rows_under("chunked-prefill")
    assert len(rows) == 3
    for prompt, chunk, passes, read in rows:
        whole = int(prompt), int(chunk)
        assert (chunk_passes(*whole), kv_tokens_read(*whole)) == (passes, read)


def test_the_page_counts_hits_and_shared_blocks_as_the_code_does() -> None:
    hits, blocks = rows_under("prefix-cache"), rows_under("copy-on-write")
    assert len(hits) == len(blocks) == 3
    for requests, shared, prompt, percent in hits:
        rate = shared_prefix_hit_rate(int(requests), int(shared), int(prompt))
        assert f"{100 * rate:.1f}" == f"{percent:.1f}"
    for prompt, output, samples, *counts in blocks:
        forked = copy_on_write(int(prompt), int(output), int(samples), 16)
        assert [forked.blocks, forked.unshared_blocks, forked.copies] == counts


def test_the_page_says_what_static_batches_use() -> None:
    rows = rows_under("dynamic-insertion")
    assert len(rows) == 3
    for slots, percent, gain in rows:
        efficiency = exponential_slot_efficiency(int(slots))
        assert (f"{100 * efficiency:.1f}", f"{1 / efficiency:.2f}") == (
            f"{percent:.1f}",
            f"{gain:.2f}",
        )


def test_the_page_shows_the_gains_over_plain_batches() -> None:
    printed = re.findall(r"^\| .* answers? \| ([\d.]+) \| ([\d.]+) \|$", PAGE, re.MULTILINE)
    assert printed == [
        tuple(
            f"{gain_over_static(model, hardware, answers, plain):.1f}" for model, hardware in PAIRS
        )
        for plain in (equal_kernels, eager)
        for answers in (1, 3)
    ]
