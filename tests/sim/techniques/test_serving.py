"""Techniques of serving: batching, chunked prefill, separate pools, and what is refused."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.presets import find_preset
from servetwin.policies.sequence import Sequence as ServedSequence
from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.core.simulate import simulate
from servetwin.sim.step_times.roofline.deployment import IDEAL_KERNELS, Deployment
from servetwin.sim.step_times.roofline.efficiency import IDEAL
from servetwin.sim.step_times.step_time import LinearStepTime
from servetwin.sim.techniques.effects import Laboratory, compare
from servetwin.sim.techniques.memory import KVCache
from servetwin.sim.techniques.parallel import TensorParallel
from servetwin.sim.techniques.serving import (
    ChunkedPrefill,
    ContinuousBatching,
    CopyOnWrite,
    DynamicInsertion,
    PagedAttention,
    PrefillDecodeSplit,
    PrefixCache,
)
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import Experiment, Technique
from servetwin.workloads.errors import PolicyError
from tests.support.checked import CheckedScheduler, request
from tests.support.formulas.phases import Phases
from tests.support.formulas.techniques import chunk_passes, kv_tokens_read
from tests.support.serving_techniques import A100, LLAMA, ONE_SECOND, REAL, by_name, pair, simulated
from tests.support.theory.batches import exponential_slot_efficiency

pytestmark = pytest.mark.slow

SHEET = Setup.of(Deployment(LLAMA, A100, IDEAL, kernels=IDEAL_KERNELS))
"""Llama-2-7B on an A100, as assumed and as the data sheet says."""


SHORT = Experiment(prompt_tokens=64, output_tokens=192)


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_from_arrival_continuous_batching_shortens_the_first_token_by_far(load: float) -> None:
    """Against static batches that sustain the load: no request waits for a batch to end."""
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


MAPPED = [PagedAttention(), PrefixCache(), CopyOnWrite(), PrefillDecodeSplit()]
FORGOTTEN = [PagedAttention(), CopyOnWrite(), PrefillDecodeSplit()]
"""A prefix cache has groups of such layers too."""


@pytest.mark.parametrize("technique", FORGOTTEN, ids=by_name)
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
    with pytest.raises(PolicyError, match="must be false with kv: contiguous"):
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
