"""On and off: what a server has by itself, what changes nothing, what excludes what."""

import pytest

from servetwin.sim.techniques.registry import TECHNIQUES, Toggles, build_setup, find_technique
from servetwin.sim.techniques.setup import Setup
from servetwin.workloads.errors import PolicyError

BASE = {
    "kv-cache", "continuous-batching", "paged-attention", "copy-on-write", "flash-attention",
    "flash-decoding", "flash-decoding++", "kernel-fusion",
}  # fmt: skip
"""What every server of data sheets has by itself."""
MODELS = {
    "llama-2-7b": BASE,
    "llama-3-8b": BASE | {"grouped-query"},
    "mixtral-8x7b": BASE | {"grouped-query", "experts"},
    "mistral-7b": (BASE | {"grouped-query"}) - {"paged-attention", "copy-on-write"},
    "deepseek-v2": BASE | {"latent-attention", "experts"},
    "mamba-2.8b": {"kv-cache", "continuous-batching", "kernel-fusion"},
}


def setup_of(model: str) -> Setup:
    return build_setup(model, "b200")


@pytest.mark.parametrize(("model", "expected"), MODELS.items())
def test_what_a_server_has_by_itself(model: str, expected: set[str]) -> None:
    setup = setup_of(model)
    assert {name for name, technique in TECHNIQUES.items() if technique().is_on(setup)} == expected


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", TECHNIQUES)
def test_what_is_on_is_the_same_after_off_and_on_and_what_is_turned_on_is_on(
    model: str, name: str
) -> None:
    """A technique that changes a shape or a share twice, or several times, is never on already."""
    technique, base = TECHNIQUES[name](), setup_of(model)
    if technique.is_on(base):
        assert technique.apply(base) == base
        assert technique.off(base) != base
        assert not technique.is_on(technique.off(base))
        if name not in ("latent-attention", "experts"):  # it takes dimensions to give them back
            assert technique.apply(technique.off(base)) == base
        return
    try:
        without, with_it = technique.off(base), technique.apply(base)
    except PolicyError:
        return
    assert with_it not in (without, base)
    assert not technique.is_on(without)
    assert technique.off(technique.off(base)) == without


@pytest.mark.parametrize(
    "text",
    [
        "continuous-batching:max_seqs=9",
        "paged-attention:block_tokens=8",
        "flash-decoding:split_tokens=64",
        "kernel-fusion:launches_per_layer=3",
    ],
)
def test_parameters_that_are_given_change_what_is_on(text: str) -> None:
    technique, base = find_technique(text), setup_of("llama-3-8b")
    assert not technique.is_on(base)
    assert technique.is_on(technique.apply(base))


@pytest.mark.parametrize(
    ("batching", "is_on"),
    [("continuous", True), ("chunked", True), ("unified", True), ("prefill-first", True),
     ("static", False), ("insertion", False)],
)  # fmt: skip
def test_every_scheduler_of_steps_is_continuous_batching(batching: str, is_on: bool) -> None:
    setup = setup_of("llama-3-8b").with_policies(batching=batching)
    assert find_technique("continuous-batching").is_on(setup) is is_on


def test_what_is_off_goes_before_what_is_on() -> None:
    with pytest.raises(PolicyError, match="prefix-cache: without a KV cache"):
        build_setup("llama-3-8b", "h100", ["prefix-cache"], without=["kv-cache"])


@pytest.mark.parametrize(
    ("on", "off", "message"),
    [
        (["fp8", "fp8"], [], "--technique: fp8 is named twice"),
        ([], ["kv-cache", "kv-cache"], "--without: kv-cache is named twice"),
        (["kv-cache"], ["kv-cache"], "kv-cache: both on .* and off"),
        (
            ["fp8", "weight-int4"],
            [],
            "fp8 and weight-int4 exclude each other: both choose the form",
        ),
        (["speculative", "blockwise"], [], "exclude each other: both choose how many tokens"),
        (["chunked-prefill", "dynamic-insertion"], [], "both choose which requests share a step"),
        (["grouped-query:kv_heads=4", "multi-query"], [], "both choose the number of KV heads"),
        (["streaming", "sliding-window"], [], "both choose the last tokens that are kept"),
        ([], ["kv-cahce"], "unknown technique 'kv-cahce'; did you mean 'kv-cache'"),
    ],
)
def test_what_does_not_go_together(on: list[str], off: list[str], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        Toggles.of(on, off)


@pytest.mark.parametrize(
    ("on", "off", "given", "notes"),
    [
        (["fp8"], [], {}, []),
        (["kv-cache"], [], {}, ["kv-cache is on here already; --without kv-cache takes it away"]),
        ([], ["fp8"], {}, ["fp8 is not on here: --without fp8 changes nothing"]),
        ([], ["kv-cache"], {}, []),
        (["chunked-prefill"], [], {"token_budget": 2048},
         ["--technique chunked-prefill sets token_budget to 512 in place of 2048"]),
        ([], ["continuous-batching"], {"max_seqs": 256},
         ["--without continuous-batching sets max_seqs to 4 in place of 256"]),
    ],
)  # fmt: skip
def test_what_a_user_should_know(
    on: list[str], off: list[str], given: dict[str, object], notes: list[str]
) -> None:
    assert Toggles.of(on, off).notes(setup_of("llama-3-8b"), given) == notes
