"""Where the draft model and the target lie, in which formats, and what a pass takes then."""

from dataclasses import replace
from typing import Any

import pytest

from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.catalogue.hardware import Hardware
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.step_times.acceptance import Chain
from servetwin.sim.step_times.roofline.deployment import IDEAL_KERNELS, Deployment
from servetwin.sim.step_times.roofline.efficiency import IDEAL
from servetwin.sim.step_times.roofline.formats import BF16, Format
from servetwin.sim.techniques.drafting import SelfSpeculation, SpeculativeDecoding, TreeSpeculation
from servetwin.sim.techniques.memory import WeightOffload
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import Technique
from servetwin.workloads.errors import PolicyError
from tests.support.acceptance import mean_tokens_per_pass
from tests.support.decoding_techniques import A100, TARGET, apart, base, law_of
from tests.support.formulas.speculation import drafted_pass_s, plain_step_s

LARGE, SMALL = find_model("llama-2-13b"), find_model("llama-2-7b")
LINK = 4e9
FAST = 1e18
"""Bytes per second of a memory whose reading takes no time."""


def of_size(name: str, weight_bytes: float, params: float) -> Format:
    return replace(BF16, name=name, weight_bytes=weight_bytes / params)


def phone(memory_bytes_per_s: float = FAST, memory_bytes: float = 12e9) -> Setup:
    """A 13B model of 7.7 GB (4.733 bits a weight) on a device without limits of computing."""
    device: Hardware = A100.model_copy(
        update={
            "name": "phone",
            "memory_bytes_per_s": memory_bytes_per_s,
            "peak_flops_per_s": {"bf16": 1e21},
            "memory_bytes": memory_bytes,
        }
    )
    form = of_size("4.733 bits", 7.7e9, LARGE.params())
    target = Deployment(LARGE, device, IDEAL, prefill=form, decode=form, kernels=IDEAL_KERNELS)
    return Setup.of(target)


def speculating(setup: Setup, **parameters: Any) -> Setup:
    """Drafts by a 7B model of 3.0 GB (3.562 bits), behind a link of 4 GB/s."""
    given = {"draft": "llama-2-7b", "gb_per_s": LINK / 1e9, **parameters}
    drafted = SpeculativeDecoding.model_validate(given).apply(setup)
    drafting = drafted.deployment.drafting
    assert drafting is not None
    form = of_size("3.562 bits", 3.0e9, SMALL.params())
    return drafted.with_deployment(drafting=replace(drafting, form=form))


def pass_s(setup: Setup, sequences: int = 1) -> float:
    return drafted_pass_s(setup.deployment, law_of(setup).rows, sequences, 100)


@pytest.mark.parametrize(
    ("alpha", "drafts", "tokens_per_s"), [(0.6, 4, 1.2809), (0.8, 4, 1.8676), (0.8, 8, 2.4050)]
)
def test_a_resident_draft_and_half_a_gigabyte_of_the_target(
    alpha: float, drafts: int, tokens_per_s: float
) -> None:
    """The printed case: 3.5 GB of fast memory, 7.2 GB of each pass come over 4 GB/s."""
    setup = speculating(phone(), alpha=alpha, drafts=drafts, resident_gb=0.5)
    assert setup.deployment.resident_weight_bytes() == pytest.approx(3.0e9 + 0.5e9)
    assert pass_s(setup) == pytest.approx(1.8, abs=1e-6)
    rate = mean_tokens_per_pass(law_of(setup)) / pass_s(setup)
    assert rate == pytest.approx(tokens_per_s, abs=5e-5)


@pytest.mark.parametrize("prefetch", [True, False])
@pytest.mark.parametrize("bytes_per_s", [50e9, 5e9])
def test_drafts_hide_behind_the_stream_as_far_as_it_lasts(
    bytes_per_s: float, prefetch: bool
) -> None:
    """max(stream, drafting + verification), or their sum; slow memory makes drafts the longer."""
    setup = speculating(phone(bytes_per_s), resident_gb=0.5)
    setup = setup.with_offload(prefetch=prefetch)
    whole = setup.with_offload(resident_weights=1.0)
    plain = phone(bytes_per_s).deployment
    verify_s, both_s = drafted_pass_s(plain, 5, 1, 100), pass_s(whole)
    attention_s = 101 * 2 * 2 * LARGE.width * LARGE.layer_count / bytes_per_s
    stream_s = 7.2e9 / LINK
    assert verify_s < stream_s
    assert (both_s < stream_s) == (bytes_per_s == 50e9)
    expected_s = max(both_s, stream_s) if prefetch else both_s + stream_s
    assert pass_s(setup) == pytest.approx(expected_s, abs=1.1 * attention_s)


def test_a_draft_on_the_host_comes_over_the_link_for_every_token_that_it_drafts() -> None:
    setup = speculating(phone(), resident_gb=0.5, draft_memory="host")
    assert setup.deployment.resident_weight_bytes() == pytest.approx(0.5e9)
    assert pass_s(setup) == pytest.approx((4 * 3.0e9 + 7.2e9) / LINK, abs=1e-6)
    near = speculating(phone(), resident_gb=0.5)
    assert near.deployment.resident_weight_bytes() == pytest.approx(3.5e9)


def test_both_models_are_charged_for_their_weights_and_keys() -> None:
    """A draft that leaves the device leaves its room to keys; a token has keys of both models."""
    both = speculating(phone(), resident_gb=0.5)
    host = speculating(phone(), resident_gb=0.5, draft_memory="host")
    per_token = 2 * 2 * (40 * 5120 + 32 * 4096)
    assert both.deployment.kv_bytes_per_token() == per_token
    tokens = [setup.scenario().policies.kv_tokens for setup in (both, host)]
    assert (tokens[1] - tokens[0]) * per_token == pytest.approx(3.0e9, abs=per_token)
    less = speculating(phone(), resident_gb=2.5).scenario().policies.kv_tokens
    assert (tokens[0] - less) * per_token == pytest.approx(2.0e9, abs=per_token)


def test_a_draft_format_is_that_of_the_draft_alone() -> None:
    plain, small = (
        SpeculativeDecoding(draft="tinyllama-1.1b", draft_format=form).apply(base()).deployment
        for form in (None, "int4")
    )
    draft = find_model("tinyllama-1.1b").params()
    assert plain.draft_weight_bytes() == 2 * draft
    assert small.draft_weight_bytes() == 0.53125 * draft
    assert small.target_weight_bytes() == plain.target_weight_bytes() == 2 * TARGET.params()
    assert drafted_pass_s(small, 5, 1, 100) < drafted_pass_s(plain, 5, 1, 100)


def test_offloading_before_or_behind_the_technique_is_the_same() -> None:
    """The share is of the target; the draft stays where its own technique puts it."""
    offload, drafts = WeightOffload(resident_gb=5), SpeculativeDecoding()
    orders = [drafts.apply(offload.apply(base())), offload.apply(drafts.apply(base()))]
    assert orders[0].deployment == orders[1].deployment
    assert SpeculativeDecoding(resident_gb=5).apply(base()).deployment.offload.resident_weights == (
        orders[0].deployment.offload.resident_weights
    )


def test_the_printed_case_in_a_simulation() -> None:
    setup = speculating(phone(), alpha=1.0, resident_gb=0.5)
    frame = run_once(apart(1, prompt=16, output=51), setup.scenario()).requests
    assert frame["tpot_s"][0] == pytest.approx(1.8 * 10 / 50, rel=1e-4)


REFUSED: list[tuple[Technique, Setup, str]] = [
    (
        SpeculativeDecoding(draft="llama-2-7b", resident_gb=7.7),
        phone(memory_bytes=8e9),
        r"speculative: resident_gb 7.7 of llama-2-13b and 3.986 GB of llama-2-7b do not fit the "
        r"7.5 GB that may be used of phone; resident_gb must be below 3.514",
    ),
    (
        SpeculativeDecoding(draft="llama-2-7b", resident_gb=0.0),
        phone(memory_bytes=4e9),
        "resident_gb 0 of llama-2-13b and 3.986 GB of llama-2-7b do not fit .*; set draft_memory=h",
    ),
    (
        TreeSpeculation(draft_memory="host", placement="overlapped"),
        base(),
        "tree-speculation: draft_memory=host needs placement=device; with placement=overlapped",
    ),
    (
        SpeculativeDecoding(draft="llama-2-13b", resident_gb=1),
        base(),
        "the draft llama-2-13b has .* a draft must be the smaller",
    ),
    (
        SpeculativeDecoding(draft_format="int5"),
        base(),
        "e: draft_format: unknown 'int5'; did",
    ),
    (
        SpeculativeDecoding(draft_format="w8a8"),
        base(hardware=A100.model_copy(update={"peak_flops_per_s": {"bf16": 1e14}})),
        "speculative: a100-80gb has no int8 peak to compute w8a8 products at",
    ),
    (
        SelfSpeculation(least_confidence=0.4, most_entropy=1),
        base(),
        "self-speculation: most_entropy 1 and least_confidence 0.4 both end the drafting",
    ),
]


@pytest.mark.parametrize(("technique", "setup", "reason"), REFUSED)
def test_what_does_not_fit_is_refused_with_key_and_reason(
    technique: Technique, setup: Setup, reason: str
) -> None:
    with pytest.raises(PolicyError, match=reason) as caught:
        technique.apply(setup)
    assert "\n" not in str(caught.value)


# When to validate
def test_the_threshold_is_one_of_confidence_or_of_entropy() -> None:
    assert law_of(SpeculativeDecoding().apply(base())) == Chain(0.7, 4)
    by_confidence = law_of(SpeculativeDecoding(least_confidence=0.4).apply(base()))
    assert by_confidence == Chain(0.7, 4, 0.4)
    by_entropy = law_of(SpeculativeDecoding(most_entropy=1.8).apply(base()))
    assert isinstance(by_entropy, Chain)
    assert by_entropy.least_confidence == pytest.approx(0.4), "1 - sqrt(0.2 x 1.8)"
    assert law_of(SpeculativeDecoding(most_entropy=5).apply(base())) == Chain(0.7, 4)


def test_drafts_that_are_not_made_take_no_time() -> None:
    """Each draft with its probability, and the rows that are verified on average."""
    setup = SpeculativeDecoding(least_confidence=0.8).apply(base())
    shares = Chain(0.7, 4, 0.8).step_shares
    draft = Deployment(find_model("llama-68m"), A100, IDEAL, kernels=IDEAL_KERNELS)
    drafts_s = [plain_step_s(draft, 1, 100 + place) for place in range(4)]
    verify_s = drafted_pass_s(base().deployment, 5, 1, 100)
    expected_s = verify_s + sum(p * s for p, s in zip(shares, drafts_s, strict=True))
    written_s = 5 * 524_288 / A100.memory_bytes_per_s
    assert pass_s(setup) == pytest.approx(expected_s, abs=2 * written_s)
    assert pass_s(setup) < pass_s(SpeculativeDecoding().apply(base()))


def test_a_batch_drafts_on_while_any_of_it_is_confident() -> None:
    """Below the ridge a step takes as long for one row as for eight."""
    technique = SpeculativeDecoding(draft="tinyllama-1.1b", least_confidence=0.8)
    stopped, whole = (
        technique.apply(base()),
        SpeculativeDecoding(draft="tinyllama-1.1b").apply(base()),
    )
    shares = [pass_s(stopped, n) / pass_s(whole, n) for n in (1, 8)]
    assert shares[0] < shares[1] < 1


def test_stopping_pays_where_drafts_are_dear_and_tokens_uncertain() -> None:
    """Drafting by a tenth of the target: eight drafts at an acceptance of 0.6, or fewer."""
    rates = []
    for least in (0.0, 0.5, 0.9):
        technique = SpeculativeDecoding(
            draft="tinyllama-1.1b", alpha=0.6, drafts=8, least_confidence=least
        )
        setup = technique.apply(base())
        rates.append(mean_tokens_per_pass(law_of(setup)) / pass_s(setup))
    assert rates[1] > rates[0]
    assert rates[1] > rates[2]


def test_stopped_drafts_in_a_simulation_stay_within_the_bounds_of_the_device() -> None:
    """Rows that were never verified are no work; the check of every run says so."""
    technique = SpeculativeDecoding(drafts=8, least_confidence=0.95)
    setup = technique.apply(base()).with_policies(max_seqs=256, token_budget=256 * 9 + 2048)
    requests = apart(120, prompt=30, output=20).requests
    crowd = replace(apart(1), requests=tuple(replace(r, arrival_s=0.0) for r in requests))
    run = run_once(crowd, setup.scenario())
    assert run.requests["output_tokens"].tolist() == [20] * 120
