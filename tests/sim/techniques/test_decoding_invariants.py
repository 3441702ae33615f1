"""Invariants of drafted decoding, over drawn setups and in whole runs."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.core.simulate import simulate
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.acceptance import Verifier
from servetwin.sim.step_times.roofline.deployment import Offload
from servetwin.sim.step_times.roofline.parallel import Parallel
from servetwin.sim.step_times.roofline.step_time import roofline_step_time
from servetwin.sim.techniques.attention import SlidingWindow
from servetwin.sim.techniques.decoding import BlockwiseDecoding, DraftedDecoding
from servetwin.sim.techniques.drafting import SelfSpeculation, SpeculativeDecoding, TreeSpeculation
from servetwin.sim.techniques.technique import Technique
from servetwin.workloads.trace import Trace
from tests.support.acceptance import mean_passes, mean_tokens_per_pass
from tests.support.checked import CheckedScheduler, request
from tests.support.decoding_techniques import (
    DRAFTED,
    FAR_APART_S,
    TARGET,
    TECHNIQUES,
    apart,
    base,
    gain,
    law_of,
)
from tests.support.formulas.speculation import drafted_pass_s, plain_step_s


def together(count: int, prompt: int, output: int) -> Trace:
    """Requests all at once."""
    return Trace(tuple(request(str(i), 0.0, prompt, output) for i in range(count)), "together")


def decode_s(run: Run) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """From the first token of each request to its last."""
    stamps = run.requests
    return (stamps["last_token_s"] - stamps["first_token_s"]).to_numpy(np.float64)


# Laws
WINDOWED = SlidingWindow(window_tokens=256).apply(base()).deployment.model


@pytest.mark.parametrize(
    "model",
    [TARGET, WINDOWED, *map(find_model, ("llama-3-8b", "mixtral-8x7b", "deepseek-v2"))],
    ids=["mha", "windowed", "gqa", "experts", "latent"],
)
@given(
    technique=st.sampled_from(
        [
            SpeculativeDecoding(alpha=0, any_vocabulary=True),
            SpeculativeDecoding(alpha=0, drafts=1, placement="overlapped", any_vocabulary=True),
            TreeSpeculation(alpha=0, any_vocabulary=True),
            SelfSpeculation(alpha=0),
            BlockwiseDecoding(alpha=0, block=3),
        ]
    ),
    sequences=st.integers(1, 300),
    context_tokens=st.integers(0, 4000),
    kernels=st.sampled_from(
        [{}, {"occupancy": "heads"}, {"occupancy": "split"}, {"attention_slowdown": 1.3}]
    ),
)
@example(BlockwiseDecoding(alpha=0, block=3), 1, 510, {"occupancy": "split"})
def test_drafts_that_are_never_accepted_are_never_faster(
    model: ModelShape,
    technique: DraftedDecoding,
    sequences: int,
    context_tokens: int,
    kernels: dict[str, Any],
) -> None:
    setup = base(model=model, **kernels)
    assert gain(technique, setup, sequences, context_tokens) <= 1 + 1e-9


@pytest.mark.parametrize(
    "split",
    [
        {"parallel": Parallel(tensor=8)},
        {"parallel": Parallel(pipeline=4)},
        {"parallel": Parallel(sequence=2)},
        {"offload": Offload(resident_weights=0.5, prefetch=False)},
        {"offload": Offload(resident_kv=0.3)},
    ],
)
@pytest.mark.parametrize("technique", [SpeculativeDecoding(alpha=0), SelfSpeculation(alpha=0)])
def test_nor_are_they_on_several_devices_or_beside_a_host(
    technique: DraftedDecoding, split: dict[str, Any]
) -> None:
    """Neither the two layers nor the twelve heads of the draft could be split like the target."""
    setup = base().with_deployment(**split)
    for sequences in (1, 7, 200):
        for context_tokens in (0, 3000):
            assert gain(technique, setup, sequences, context_tokens) <= 1 + 1e-9


@pytest.mark.parametrize(
    "technique", [SpeculativeDecoding(), TreeSpeculation(), BlockwiseDecoding()]
)
def test_the_gain_goes_as_the_batch_passes_the_ridge(technique: DraftedDecoding) -> None:
    gains = [gain(technique, base(), sequences, 64) for sequences in (1, 16, 64, 256, 1024)]
    assert gains[0] > 2
    assert all(a >= b for a, b in pairwise(gains))
    assert gains[-1] < 1


@given(
    alphas=st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted),
    sequences=st.integers(1, 100),
)
def test_a_likelier_acceptance_is_never_slower(alphas: list[float], sequences: int) -> None:
    less, more = (gain(SpeculativeDecoding(alpha=a), base(), sequences, 300) for a in alphas)
    assert less <= more + 1e-12


# Simulations
FAR_AND_STOPPED = SpeculativeDecoding(
    draft_memory="host", draft_format="int4", resident_gb=6, gb_per_s=40, least_confidence=0.5
)


@pytest.mark.parametrize(
    "technique", [*TECHNIQUES, FAR_AND_STOPPED], ids=lambda technique: str(technique.name)
)
def test_every_request_gets_its_tokens_with_it_and_without(technique: Technique) -> None:
    requests = Trace(
        tuple(request(str(i), 0.05 * i, 50 + 37 * i % 300, 1 + 29 * i % 90) for i in range(40)),
        "mixed",
    )
    setup = base()
    runs = [
        run_once(requests, s.scenario()) for s in (technique.off(setup), technique.apply(setup))
    ]
    without, with_it = (run.requests.set_index("request_id")["output_tokens"] for run in runs)
    assert (
        with_it.to_dict() == without.to_dict() == {r.request_id: r.output_tokens for r in requests}
    )
    assert all((run.requests["status"] == "finished").all() for run in runs)


@pytest.mark.parametrize(
    "technique",
    [
        SpeculativeDecoding(),
        SpeculativeDecoding(alpha=0.9, drafts=8),
        TreeSpeculation(),
        FAR_AND_STOPPED,
    ],
    ids=["chain", "long-chain", "tree", "far-and-stopped"],
)
def test_a_request_alone_gains_what_the_closed_form_says(technique: DraftedDecoding) -> None:
    """Truncation included: passes(64) of the law, at the step times of the mean context."""
    prompt, tokens, count = 500, 64, 1000
    trace, without = apart(count, prompt, tokens + 1), base()
    with_it = technique.apply(without)
    law = law_of(with_it)
    plain, drafted = (run_once(trace, setup.scenario()) for setup in (without, with_it))

    steps = drafted.steps[drafted.steps["decode_sequences"] > 0]
    passes = steps["steps"].groupby(steps["start_s"] // FAR_APART_S).sum().to_numpy()
    assert len(passes) == count
    assert abs(passes.mean() - mean_passes(law, tokens)) <= 4 * passes.std(ddof=1) / np.sqrt(count)

    mean_context = prompt + (tokens - 1) // 2
    pass_s = drafted_pass_s(with_it.deployment, law.rows, 1, mean_context)
    step_s = plain_step_s(without.deployment, 1, mean_context)
    expected = tokens * step_s / (mean_passes(law, tokens) * pass_s)
    ratios = decode_s(plain) / decode_s(drafted).mean()
    error = decode_s(drafted).std(ddof=1) / decode_s(drafted).mean() / np.sqrt(count)
    assert 4 * error < 0.02
    assert abs(ratios.mean() / expected - 1) <= 4 * error
    assert expected < mean_tokens_per_pass(law) * step_s / pass_s, "truncation costs"


def test_a_large_batch_of_short_contexts_is_served_no_faster() -> None:
    trace = together(256, 16, 40)
    rates = [
        run_once(trace, s.scenario()).summary()["output_throughput_tokens_per_s"]
        for s in (base(), SpeculativeDecoding(alpha=0.6).apply(base()))
    ]
    assert rates[1] <= rates[0]


def test_the_same_seed_draws_the_same_acceptance_at_any_acceptance_rate() -> None:
    """Common random numbers: a likelier acceptance ends no request later."""
    once, again, likelier = (
        decode_s(run_once(apart(20), SpeculativeDecoding(alpha=alpha).apply(base()).scenario()))
        for alpha in (0.5, 0.5, 0.8)
    )
    assert (once == again).all()
    assert (likelier <= once).all()
    assert (likelier < once).any()


def test_a_sequence_has_one_verification_in_flight() -> None:
    """Generation is sequential: a pass begins where the tokens of the last one ended."""
    setup = SpeculativeDecoding().apply(base())
    config = replace(setup.scenario().policies, max_seqs=4, token_budget=2048)
    requests = [request(str(i), 0.0, 20 + i, 30) for i in range(9)]
    verifier = Verifier(law_of(setup))
    run = simulate(
        requests,
        CheckedScheduler(config),
        roofline_step_time(setup.deployment),
        verifier=verifier,
        keep_records=True,
    )
    starts: dict[str, list[int]] = {}
    for record in run.records:
        names = [name for name, *_ in record.entries]
        assert len(set(names)) == len(names)
        for name, start, _, _ in record.entries:
            starts.setdefault(name, []).append(start)
    for places in starts.values():
        assert all(1 <= b - a <= 5 for a, b in pairwise(places[1:]))
    ends, begins = run.steps["end_s"].to_numpy()[:-1], run.steps["start_s"].to_numpy()[1:]
    assert (ends <= begins).all()


def test_prompts_find_the_room_in_a_step_that_they_had() -> None:
    without = base().policies
    for technique in DRAFTED:
        policies = technique.apply(base()).policies
        room = policies.token_budget - policies.max_seqs * (1 + policies.draft_rows)
        assert room == without.token_budget - without.max_seqs
        assert policies.batching == "continuous"
