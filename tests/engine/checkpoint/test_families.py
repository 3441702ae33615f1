"""Families of models by transformers' own classes: their folders answer as they do."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from servetwin.engine.adapters.adapter_folder import targets
from servetwin.engine.checkpoint.find_model import find_model
from servetwin.engine.core.core_process import bundled
from servetwin.engine.core.early_exit_runner import ExitingDecoder
from servetwin.engine.kv.forgetting import kept_tokens
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.linear import Products
from servetwin.engine.models.model_config import Norms
from servetwin.engine.parallel.shards import shard_config
from servetwin.engine.serve_options import ServeOptions
from servetwin.policies.config import PolicyConfig
from servetwin.workloads.errors import EngineError
from tests.support.checkpoint_families import (
    FAMILIES,
    PROMPT_IDS,
    greedy,
    policies_of,
    write_family,
)
from tests.support.checkpoints import edit_json
from tests.support.engine_oracle import NEW_TOKENS
from tests.support.live_server import COMPLETIONS, LiveServer
from tests.support.recorded_core import run_greedy

MAX_LOGIT_ERROR = 1e-4
BATCHING: list[dict[str, Any]] = [
    {"batching": "static", "max_seqs": 4},
    {"batching": "continuous"},
    {"batching": "chunked", "token_budget": 24, "prefix_cache": True},
]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_answers_as_transformers_does(family: str, tmp_path: Path) -> None:
    tokens, logits = greedy(write_family(tmp_path, family))
    found = find_model(str(tmp_path))
    load = found.load_weights(found.config)
    for settings in BATCHING:
        policies = policies_of(found, **settings)
        run = run_greedy(found.config, policies, PROMPT_IDS, NEW_TOKENS, load_weights=load)
        assert run.tokens == tokens
        assert (torch.stack(run.logits) - logits).abs().max() <= MAX_LOGIT_ERROR
    assert len({token for each in tokens for token in each}) > 24


ONE_BY_ONE: list[tuple[str, dict[str, Any]]] = [
    ("Phi3", {"windows": ()}),
    ("Gemma2", {"windows": ()}),
    ("Gemma2", {"score_cap": None}),
    ("Gemma2", {"logit_cap": None}),
    ("GptOss", {"learned_sinks": False}),
    ("Falcon/alibi", {"alibi": False}),
    ("Glm4", {"rotary_share": 1.0}),
    ("GPTNeoX", {"rotary_share": 1.0}),
    ("GPTNeoX", {"norms": Norms(centred=True, biased=True)}),
    ("GPTNeoX", {"activation": "relu"}),
    ("OPT", {"more_positions": 0}),
    ("Llama4Text", {"bare_qk_norm": False}),
    ("Llama4Text", {"layer_thetas": ()}),
    ("NemotronH", {"activation": "relu"}),
]
"""Families, and a feature that they are asked to go without."""


@pytest.mark.parametrize(("family", "changes"), ONE_BY_ONE)
def test_logits_need_each_feature(family: str, changes: dict[str, Any], tmp_path: Path) -> None:
    _, logits = greedy(write_family(tmp_path, family))
    found = find_model(str(tmp_path))
    policies = policies_of(found)
    load = found.load_weights(found.config)
    without = replace(found.config, **changes)
    run = run_greedy(without, policies, PROMPT_IDS, 1, load_weights=load)
    assert (torch.stack(run.logits) - logits[:, :1]).abs().max() > 100 * MAX_LOGIT_ERROR


Oracle = tuple[list[list[int]], torch.Tensor]
"""Tokens and logits of transformers."""
Note = Callable[[str, object], None]


@torch.inference_mode()
def near_tie(model: Any, oracle: Oracle) -> float:
    """Return the gap of two logits below which a format may take either token: twice what it puts
    into the logits of transformers itself, against float32 with the same weights and tokens.
    """
    tokens, logits = oracle
    ids = torch.cat([torch.tensor(PROMPT_IDS), torch.tensor(tokens)], dim=1)
    exact = model.float()(ids, use_cache=False).logits[:, len(PROMPT_IDS[0]) - 1 : -1]
    return 2 * float((exact - logits).abs().max())


def assert_equal_but_for_near_ties(
    answers: list[list[int]], oracle: Oracle, tie: float, note: Note
) -> None:
    """Each answer is that of transformers up to a near tie, noted with the gap of the two log
    probabilities in transformers.
    """
    for prompt, (ours, theirs, logits) in enumerate(zip(answers, *oracle, strict=True)):
        assert len(ours) == len(theirs)
        place = next((n for n, own in enumerate(ours) if own != theirs[n]), None)
        if place is not None:
            gap = float(logits[place, theirs[place]] - logits[place, ours[place]])
            note(f"near tie of prompt {prompt} at token {place}", gap)
            assert gap <= tie, (prompt, place, gap)


ROUTED = (
    "Mixtral", "Qwen2Moe", "Qwen3Moe", "GptOss", "DeepseekV2", "DeepseekV3", "Llama4Text",
    "NemotronH", "GraniteMoeHybrid/experts",
)  # fmt: skip
DENSE = [family for family in FAMILIES if family not in (*ROUTED, "GraniteMoeHybrid/rope")]
"""Of the others transformers itself differs from float32 by whole deviations: where a router is
near a tie, or these weights make much of small differences.
"""


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("family", DENSE)
def test_a_family_answers_in_fewer_bits_but_for_near_ties(
    family: str, dtype: str, tmp_path: Path, record_property: Note
) -> None:
    model = write_family(tmp_path, family, getattr(torch, dtype))
    oracle = greedy(model)
    tie = near_tie(model, oracle)
    assert tie < oracle[1].std()
    found = find_model(str(tmp_path))
    options: dict[str, Any] = {
        "load_weights": found.load_weights(found.config),
        "computation": Computation(device="cpu", dtype=dtype),
    }
    for settings in BATCHING:
        policies = policies_of(found, **settings)
        run = run_greedy(found.config, policies, PROMPT_IDS, NEW_TOKENS, **options)
        assert_equal_but_for_near_ties(run.tokens, oracle, tie, record_property)


OVER_HTTP = [(family, "float32") for family in FAMILIES] + [
    (family, dtype)
    for family in ("Llama", "Gemma2", "GPT2", "Falcon/alibi", "Mamba2", "Bamba")
    for dtype in ("bfloat16", "float16")
]


@pytest.mark.slow
@pytest.mark.parametrize(("family", "dtype"), OVER_HTTP)
def test_a_family_answers_over_http(
    family: str, dtype: str, tmp_path: Path, record_property: Note
) -> None:
    model = write_family(tmp_path, family, getattr(torch, dtype))
    oracle = greedy(model)
    policies = policies_of(find_model(str(tmp_path)))
    options = ServeOptions(
        str(tmp_path), policies, computation=Computation(device="cpu", dtype=dtype)
    )
    with LiveServer(policies, build=bundled(options)) as live:
        body = {
            "prompt": PROMPT_IDS, "max_tokens": NEW_TOKENS, "temperature": 0,
            "ignore_eos": True, "return_token_ids": True,
        }  # fmt: skip
        choices = live.client.post(COMPLETIONS, json=body, timeout=120).json()["choices"]
    answers = [choice["token_ids"] for choice in choices]
    if dtype == "float32":
        assert answers == oracle[0]
    else:
        tie = near_tie(model, oracle)
        assert_equal_but_for_near_ties(answers, oracle, tie, record_property)


WRONG = [
    ({"no_rope_layers": [1, 0]}, "SmolLM3", "no_rope_layers must be a list of 4 zeros and ones"),
    ({"no_rope_layers": [1, 0, 2, 1]}, "SmolLM3", "no_rope_layers must be a list of 4"),
    ({"layer_types": ["sliding_attention"]}, "Gemma3Text", "layer_types must be a list of 4"),
    ({"query_pre_attn_scalar": 0}, "Gemma3Text", "query_pre_attn_scalar must be a number above 0"),
    ({"hidden_activation": "relu"}, "Gemma3Text", 'hidden_activation "relu" is not supported'),
    ({"logits_scaling": "x"}, "Granite", "logits_scaling must be a number above 0"),
    ({"use_qk_norm": True}, "Cohere", "use_qk_norm true is not supported"),
    ({"time_step_limit": [1, "x"]}, "Mamba2", "time_step_limit .* is not supported"),
    ({"time_step_limit": 3}, "Bamba", "time_step_limit 3 is not supported"),
    ({"n_groups": 3}, "Mamba2", "n_groups 3 does not divide the 8 heads of a state"),
    ({"attn_layer_indices": [4]}, "Bamba", "attn_layer_indices must be layers of 0 .. 3"),
    ({"attn_layer_indices": ["1"]}, "Bamba", "attn_layer_indices must be a list of int"),
    ({"mamba_d_head": "auto"}, "Bamba", "mamba_d_head must be a whole number"),
    (
        {"layer_types": 4 * ["quantum"]},
        "GraniteMoeHybrid",
        "layer_types must be a list of 4 of ful",
    ),
    ({"layers_block_type": ["mlp"]}, "NemotronH", "hybrid_override_pattern must be one FFN behind"),
    ({"layers_block_type": ["quantum"]}, "NemotronH", "layers_block_type must be of M E - "),
    ({"moe_latent_size": 32}, "NemotronH", "moe_latent_size 32 is not supported"),
    ({"moe_layers": ["1"]}, "Llama4Text", "moe_layers must be a list of int"),
    ({"partial_rotary_factor": 0.2, "rope_parameters": {}}, "Glm4", "a rotary width of"),
]


@pytest.mark.parametrize(("changes", "family", "message"), WRONG)
def test_a_wrong_key_of_a_family_is_named(
    changes: dict[str, Any], family: str, message: str, tmp_path: Path
) -> None:
    write_family(tmp_path, family)
    edit_json(tmp_path / "config.json", **changes)
    with pytest.raises(EngineError, match=message) as refused:
        find_model(str(tmp_path))
    assert str(refused.value).startswith(f"{tmp_path}/config.json: ")


def test_contexts_of_llama_4_end_with_the_first_chunk(tmp_path: Path) -> None:
    """Up to there chunks hide nothing, and no layer sharpens its scores by the position."""
    write_family(tmp_path, "Llama4Text")
    for key in ("attention_chunk_size", "floor_scale"):
        edit_json(tmp_path / "config.json", **{key: 48})
        assert find_model(str(tmp_path)).config.max_model_len == 47
        edit_json(tmp_path / "config.json", **{key: 8192})
    assert find_model(str(tmp_path)).config.max_model_len == 512


def test_what_a_family_cannot_have_is_refused_by_name(tmp_path: Path) -> None:
    write_family(tmp_path / "olmo", "Olmo2")
    write_family(tmp_path / "glm", "Glm4")
    write_family(tmp_path / "gemma", "Gemma3Text")
    olmo, glm, gemma = (find_model(str(tmp_path / name)) for name in ("olmo", "glm", "gemma"))
    with pytest.raises(EngineError, match="model olmo has norms over all heads, which ranks"):
        shard_config(olmo.config, 2)
    with pytest.raises(EngineError, match="pairs of rows that the engine moves"):
        targets(glm.config)
    load = olmo.load_weights(olmo.config)
    assert load is not None
    weights = load(torch.float32, torch.device("cpu"))
    with pytest.raises(EngineError, match="layers of olmo differ from Llama's"):
        ExitingDecoder(olmo.config, weights, Products(Computation()))
    forgetting = PolicyConfig(kv="grouped", kv_groups="kept:16", kv_tokens=1024)
    with pytest.raises(EngineError, match="layers of model gemma turn differently"):
        kept_tokens(gemma.config, forgetting, Computation())
