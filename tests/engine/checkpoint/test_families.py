"""Families of models by transformers' own classes: their folders answer as they do."""

import contextlib
import io
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from servetwin.engine.adapters.adapter_folder import targets
from servetwin.engine.checkpoint.find_model import find_model
from servetwin.engine.core.early_exit_runner import ExitingDecoder
from servetwin.engine.kv.forgetting import kept_tokens
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.linear import Products
from servetwin.engine.parallel.shards import shard_config
from servetwin.policies.config import PolicyConfig
from servetwin.workloads.errors import EngineError
from tests.support.checkpoints import edit_json
from tests.support.engine_oracle import NEW_TOKENS, PROMPTS
from tests.support.recorded_core import run_greedy
from tests.support.text_tokenizers import byte_level, write_tokenizer

MAX_LOGIT_ERROR = 1e-4
BATCHING: list[dict[str, Any]] = [
    {"batching": "static", "max_seqs": 4},
    {"batching": "continuous"},
    {"batching": "chunked", "token_budget": 24, "prefix_cache": True},
]

FAMILIES: dict[str, dict[str, Any]] = {
    "Granite": {
        "attention_multiplier": 0.2,
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.4,
        "logits_scaling": 2.0,
        "attention_bias": True,
    },
    "SmolLM3": {"no_rope_layer_interval": 2},
    "Olmo2": {},
    "Phi3": {"sliding_window": 24},
    "Glm": {"attention_bias": True},
    "Glm4": {
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e4,
            "partial_rotary_factor": 0.25,
        }
    },
    "Cohere": {"logit_scale": 0.3},
    "Cohere2": {"logit_scale": 0.3, "sliding_window": 16, "sliding_window_pattern": 2},
    "Ernie4_5": {"use_bias": True},
    "Gemma": {"hidden_act": "gelu_pytorch_tanh"},
    "Gemma3Text": {"query_pre_attn_scalar": 20, "sliding_window": 16, "sliding_window_pattern": 2},
    "Qwen2Moe": {
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 48,
        "shared_expert_intermediate_size": 80,
    },
}


def write_family(folder: Path, family: str) -> Any:
    """Write a small model of a family with random weights; return transformers' model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers
    config = getattr(transformers, f"{family}Config")(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=512,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=1,
        tie_word_embeddings=False,
        **FAMILIES[family],
    )
    model = getattr(transformers, f"{family.removesuffix('Text')}ForCausalLM")(config).eval()
    generator = torch.Generator().manual_seed(3)
    for name, parameter in model.named_parameters():
        mean = 1.0 if "norm" in name and not family.startswith("Gemma") else 0.0
        parameter.data.normal_(mean, 0.2, generator=generator)
    with contextlib.redirect_stderr(io.StringIO()):  # a progress bar
        model.save_pretrained(folder)
    write_tokenizer(folder, byte_level())
    return model


@torch.inference_mode()
def greedy(model: Any) -> tuple[list[list[int]], torch.Tensor]:
    """Return tokens and logits with everything recomputed for each token."""
    ids, logits = torch.tensor(PROMPTS) % 512, []
    for _ in range(NEW_TOKENS):
        logits.append(model(ids, use_cache=False).logits[:, -1].float())
        ids = torch.cat([ids, logits[-1].argmax(-1, keepdim=True)], dim=1)
    return ids[:, len(PROMPTS[0]) :].tolist(), torch.stack(logits, 1)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_answers_as_transformers_does(family: str, tmp_path: Path) -> None:
    tokens, logits = greedy(write_family(tmp_path, family))
    found = find_model(str(tmp_path))
    load = found.load_weights(found.config)
    prompts = [[token % 512 for token in prompt] for prompt in PROMPTS]
    for settings in BATCHING:
        policies = PolicyConfig(kv_tokens=1024, max_model_len=128, **settings)
        run = run_greedy(found.config, policies, prompts, NEW_TOKENS, load_weights=load)
        assert run.tokens == tokens
        assert (torch.stack(run.logits) - logits).abs().max() <= MAX_LOGIT_ERROR
    assert len({token for each in tokens for token in each}) > 24


WRONG = [
    ({"no_rope_layers": [1, 0]}, "SmolLM3", "no_rope_layers must be a list of 4 zeros and ones"),
    ({"no_rope_layers": [1, 0, 2, 1]}, "SmolLM3", "no_rope_layers must be a list of 4"),
    ({"layer_types": ["sliding_attention"]}, "Gemma3Text", "layer_types must be a list of 4"),
    ({"query_pre_attn_scalar": 0}, "Gemma3Text", "query_pre_attn_scalar must be a number above 0"),
    ({"hidden_activation": "relu"}, "Gemma3Text", 'hidden_activation "relu" is not supported'),
    ({"logits_scaling": "x"}, "Granite", "logits_scaling must be a number above 0"),
    ({"use_qk_norm": True}, "Cohere", "use_qk_norm true is not supported"),
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


def test_what_a_family_cannot_have_is_refused_by_name(tmp_path: Path) -> None:
    write_family(tmp_path / "olmo", "Olmo2")
    write_family(tmp_path / "glm", "Glm4")
    write_family(tmp_path / "gemma", "Gemma3Text")
    olmo, glm, gemma = (find_model(str(tmp_path / name)) for name in ("olmo", "glm", "gemma"))
    with pytest.raises(EngineError, match="model olmo norms all heads together; use 1 rank"):
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
