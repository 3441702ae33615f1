"""Techniques of the simulator on the bundled engine."""

from dataclasses import replace

import pytest

from servetwin.app.serving.models import model_of, shape_of
from servetwin.app.serving.techniques import (
    CannotRun,
    EngineSetup,
    engine_forms,
    notes,
    plain_setup,
    with_techniques,
)
from servetwin.engine.drafting.drafts import Drafts
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.model_config import PRESETS, ExpertConfig, LatentConfig
from servetwin.engine.serve_options import ServeOptions
from servetwin.policies.config import PolicyConfig
from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.techniques.registry import TECHNIQUES, Toggles
from servetwin.workloads.errors import PolicyError

WIDE = replace(PRESETS["llama-1b"], name="wide", vocab_size=32_000)
LARGE = ServeOptions("base", PolicyConfig(kv_tokens=4096), shape=WIDE)
DRAFT_MODEL = replace(model_of(find_model("llama-68m"), WIDE))
SMALL = ServeOptions("small", PolicyConfig(kv_tokens=4096))


def started_with(*on: str, without: tuple[str, ...] = ()) -> ServeOptions:
    return with_techniques(SMALL, Toggles.of(on, without))


@pytest.mark.parametrize(
    ("technique", "settings"),
    [
        ("chunked-prefill:token_budget=64", {"batching": "chunked", "token_budget": 64}),
        ("dynamic-insertion:slots=4", {"batching": "insertion", "max_seqs": 4}),
        ("prefix-cache:index=blocks", {"prefix_cache": True, "prefix_index": "blocks"}),
        ("paged-attention:block_tokens=32,attention_slowdown=0.2", {"block_tokens": 32}),
        ("continuous-batching:max_seqs=3", {"max_seqs": 3}),
    ],
)
def test_policies_are_the_techniques(technique: str, settings: dict[str, object]) -> None:
    assert started_with(technique) == replace(SMALL, policies=replace(SMALL.policies, **settings))  # type: ignore[arg-type]


def test_ranks_share_the_model() -> None:
    found = started_with("tensor-parallel:ways=2,latency_us=5")
    assert found == replace(SMALL, computation=Computation(tensor_parallel=2))
    with pytest.raises(PolicyError, match="4 ways do not divide the 6 heads of small"):
        started_with("tensor-parallel:ways=4")


@pytest.mark.parametrize(
    ("technique", "drafts"),
    [
        (
            "speculative:draft=llama-68m,drafts=3,alpha=0.5",
            Drafts("model", (1, 1, 1), model="llama-68m", shape=DRAFT_MODEL),
        ),
        (
            "speculative:draft=llama-68m,drafts=2,least_confidence=0.3",
            Drafts("model", (1, 1), model="llama-68m", shape=DRAFT_MODEL, least_confidence=0.3),
        ),
        (
            "tree-speculation:draft=llama-68m,widths=3x2",
            Drafts("model", (3, 2), model="llama-68m", shape=DRAFT_MODEL),
        ),
        (
            "self-speculation:layer_share=0.25,drafts=2",
            Drafts("layers", (1, 1), layer_share=4 / 16),
        ),
    ],
)
def test_drafts_are_the_techniques(technique: str, drafts: Drafts) -> None:
    found = with_techniques(LARGE, Toggles.of((technique,), ()))
    assert found.computation == Computation(drafts=drafts)
    rows = drafts.tree.drafts
    before = LARGE.policies
    assert found.policies == replace(
        before,
        draft_rows=rows,
        token_budget=before.token_budget + rows * before.max_seqs,
    )
    assert ServeOptions.from_json(found.as_json()) == found


@pytest.mark.parametrize(
    ("technique", "reason"),
    [
        ("speculative:draft=llama-68m,placement=overlapped", "it has no placement=overlapped;"),
        ("speculative:draft=llama-68m,draft_format=int8", "it has no draft_format;"),
        ("speculative:draft=llama-68m,draft_memory=host", "it has no draft_memory=host;"),
        ("self-speculation:context_tokens=64", "it has no context_tokens;"),
        (
            "speculative:draft=small,any_vocabulary=true",
            "it translates no tokens: small has 16384 in its vocabulary, wide 32000",
        ),
        ("blockwise", "it drafts with a model, with layers of the model itself, or n-grams"),
        ("diffusion", "it drafts with a model"),
    ],
)
def test_drafts_that_the_engine_does_not_make_are_refused(technique: str, reason: str) -> None:
    with pytest.raises(CannotRun, match=f"the bundled engine cannot run it, {reason}"):
        with_techniques(LARGE, Toggles.of((technique,), ()))


def test_without_a_kv_cache_no_request_waits_for_memory() -> None:
    found = started_with(without=("kv-cache",))
    assert found.computation == Computation(kv_cache=False)
    assert found.policies == replace(SMALL.policies, kv_tokens=1 << 40)
    assert started_with("kv-cache") == SMALL


def test_exits_are_the_techniques() -> None:
    found = started_with("early-exit:depths=0.25x1,shares=0.5x0.5")
    assert found == replace(SMALL, computation=Computation(exits=((0.25, 0.5), (1.0, 0.5))))
    assert ServeOptions.from_json(found.as_json()) == found
    assert "early-exit" in engine_forms()


def test_off_comes_before_on_and_memory_keeps_its_size() -> None:
    found = started_with("prefix-cache", without=("continuous-batching:static_batch=2",))
    assert (found.policies.batching, found.policies.max_seqs) == ("static", 2)
    assert (found.policies.prefix_cache, found.policies.kv_tokens) == (True, 4096)


@pytest.mark.parametrize(
    ("technique", "field"),
    [
        ("cascade:small=tiny", "deployment.cascade"),
        ("prefill-decode-split", "cluster.decode_replicas"),
        ("pipeline-parallel", "deployment.parallel.pipeline"),
    ],
)
def test_a_field_that_nothing_translates_is_refused(technique: str, field: str) -> None:
    with pytest.raises(CannotRun) as refused:
        started_with("prefix-cache", technique)
    name = technique.partition(":")[0]
    said = f"technique {name}: the bundled engine cannot run it, it has nothing for {field}; "
    assert str(refused.value).startswith(said)
    assert str(refused.value).endswith(f"it runs {', '.join(engine_forms())}")


@pytest.mark.parametrize("technique", ["weight-offload", "kv-offload", "kv-offload:prefetch=false"])
def test_there_is_no_second_memory_to_stream_from(technique: str) -> None:
    with pytest.raises(CannotRun, match="a CPU has no second one, and on a GPU nothing is stream"):
        started_with(technique)


@pytest.mark.parametrize(
    ("technique", "changes", "kept"),
    [
        ("sliding-window:window_tokens=64", {"windows": (64,) * 8}, 64),
        (
            "streaming:sink_tokens=4,window_tokens=60",
            {"windows": (60,) * 8, "sink_tokens": 4},
            64,
        ),
    ],
)
def test_memory_forgets_what_no_layer_sees(
    technique: str, changes: dict[str, object], kept: int
) -> None:
    model = replace(PRESETS["small"], **changes)  # type: ignore[arg-type]
    policies = replace(SMALL.policies, kv="grouped", kv_groups=f"kept:{kept}")
    assert started_with(technique) == replace(SMALL, shape=model, policies=policies)
    assert started_with("chunked-prefill", technique).policies.kv == "grouped"
    assert started_with(technique, "chunked-prefill").policies.kv == "grouped"


def test_a_window_is_a_mask_alone_where_memory_cannot_forget() -> None:
    window = "sliding-window:window_tokens=64"
    shares = replace(SMALL, policies=replace(SMALL.policies, prefix_cache=True))
    for found in (
        started_with(window, "tensor-parallel:ways=2"),
        with_techniques(shares, Toggles.of((window,), ())),
    ):
        assert found.policies.kv == "paged"
        assert found.shape == replace(PRESETS["small"], windows=(64,) * 8)
    with pytest.raises(PolicyError, match="of kv_groups forgets what others would share"):
        with_techniques(shares, Toggles.of(("streaming",), ()))


@pytest.mark.parametrize(
    ("technique", "changes"),
    [
        ("multi-query", {"kv_heads": 1}),
        ("cross-layer:layers=4", {"kv_sharing": 4}),
        ("weight-sharing", {"weight_sharing": 2}),
        ("grouped-query:kv_heads=1", {"kv_heads": 1}),
        (
            "sliding-window:window_tokens=64,global_every=4",
            {"windows": (64,) * 6 + (None,) * 2},
        ),
        (
            "latent-attention:latent_dim=48,rope_dim=16,nope_dim=32,value_dim=32",
            {"kv_heads": 1, "head_dim": 48, "latent": LatentConfig(48, 16, 32)},
        ),
        (
            "experts:experts=4",
            {
                "name": "small as 4 experts of equal total size",
                "experts": ExpertConfig(4, 2, 256),
            },
        ),
        (
            "structured-pruning:kept_heads=0.5",
            {"name": "small pruned", "heads": 3, "kv_heads": 1, "ffn_size": 768},
        ),
    ],
)
def test_models_are_the_techniques(technique: str, changes: dict[str, object]) -> None:
    model = replace(PRESETS["small"], **changes)  # type: ignore[arg-type]
    assert started_with(technique) == replace(SMALL, shape=model)


@pytest.mark.parametrize(
    ("technique", "reason"),
    [
        ("low-rank-kv:rank=8", "its attention has no rank"),
        ("dilated", "its attention has no dilation"),
        ("state-space", "its layers have attention"),
    ],
)
def test_a_model_that_the_engine_does_not_have_is_refused(technique: str, reason: str) -> None:
    with pytest.raises(CannotRun, match=f"the bundled engine cannot run it, {reason}"):
        started_with(technique)


def test_what_makes_no_sense_is_refused_by_the_technique_itself() -> None:
    with pytest.raises(PolicyError, match="4 kv_heads are not possible for small"):
        started_with("grouped-query:kv_heads=4")


def test_every_technique_that_is_said_to_run_is_translated() -> None:
    runs = engine_forms()
    assert {"speculative", "tree-speculation", "self-speculation"} <= set(runs)
    assert {"chunked-prefill", "prefix-cache", "dynamic-insertion"} <= set(runs) <= set(TECHNIQUES)
    for name in ("chunked-prefill", "prefix-cache", "dynamic-insertion"):
        assert started_with(name) != SMALL


def test_the_setup_has_the_shape_and_the_formats_of_the_engine() -> None:
    for name, config in PRESETS.items():
        shape, shipped = shape_of(config), find_model(name)
        assert (shape.params(), shape.kv_elements_per_token()) == (
            shipped.params(), shipped.kv_elements_per_token(),
        )  # fmt: skip
    engine = EngineSetup.of(SMALL)
    assert plain_setup(engine).deployment.kv_bytes_per_token() == 8 * 2 * 2 * 64 * 4
    half = replace(engine, computation=Computation(dtype="bfloat16"))
    assert plain_setup(half).deployment.weight_bytes() == 2 * shape_of(engine.model).params()


def test_notes_say_what_changes_nothing_and_which_settings_are_lost() -> None:
    said = notes(SMALL, Toggles.of(["paged-attention", "chunked-prefill"]), {"token_budget": 256})
    assert said == [
        "paged-attention is on here already; --without paged-attention takes it away",
        "--technique chunked-prefill sets token_budget to 512 in place of 256",
    ]
