"""Open models and devices are known by any of their names, with the formats of their weights."""

import json
import re
from pathlib import Path

import pytest

from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.catalogue.hub_names import hub_models
from servetwin.sim.catalogue.quantisation import Quantisation
from servetwin.workloads.errors import ShapeError

FP8_BLOCK = Quantisation(gemm="fp8-block", experts="fp8-block")
FP8 = Quantisation(gemm="fp8", experts="fp8")


@pytest.mark.parametrize(
    ("name", "billions", "formats"),
    [
        ("Qwen/Qwen3-235B-A22B-FP8", 235, FP8_BLOCK),
        ("qwen3-235b-a22b-fp8", 235, FP8_BLOCK),
        ("qwen3-235b", 235, Quantisation()),
        ("DeepSeek-V3", 671, FP8_BLOCK),
        ("deepseek-r1", 671, FP8_BLOCK),
        ("nvidia/DeepSeek-R1-FP4", 671, Quantisation(experts="nvfp4", kv="fp8")),
        ("openai/gpt-oss-120b", 117, Quantisation(experts="mxfp4")),
        ("llama-3.3-70b", 70.6, Quantisation()),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", 70.6, FP8),
        ("Meta-Llama-3.1-405B-Instruct", 406, Quantisation()),
        ("kimi-k2", 1026, FP8_BLOCK),
        ("moonshotai/Kimi-K2-Thinking", 1026, Quantisation(experts="w4a16-g32")),
        ("GLM-4.6-FP8", 353, FP8_BLOCK),
        ("glm-4.5-air", 107, Quantisation()),
        ("glm-5", 743, Quantisation()),
        ("llama-4-scout", 108, Quantisation()),
        ("llama-4-maverick", 401, Quantisation()),
        ("qwen3.5-397b-a17b", 396, Quantisation()),
        ("qwen3-next-80b-a3b", 80, Quantisation()),
        ("minimax-m2", 229, FP8_BLOCK),
        ("phi-4", 14.7, Quantisation()),
        ("gemma-3-27b", 27, Quantisation()),
        ("mistral-small", 23.6, Quantisation()),
        ("AceMath-7B", 7.6, Quantisation()),
        ("DeepSeek-R1-Distill-Llama-70B", 70.6, Quantisation()),
        ("QwQ-32B", 32.8, Quantisation()),
        ("Qwen2.5-7B-Instruct-AWQ", 7.6, Quantisation(gemm="w4a16", experts="w4a16")),
        ("nemotron-3-super-120b-a12b", 121, Quantisation()),
        ("deepseek-v4-pro", 1592, Quantisation(gemm="fp8-block", experts="mxfp4")),
        ("ibm-granite/granite-3.3-8b-instruct", 8.17, Quantisation()),
        ("IBM-GRANITE/GRANITE-3.3-2B-INSTRUCT", 2.53, Quantisation()),
        ("granite-4.0-h-small", 32.2, Quantisation()),
        ("nvidia/Llama-3_3-Nemotron-Super-49B-v1", 49.9, Quantisation()),
        ("llama-3.3-nemotron-super-49b-v1.5-fp8", 49.9, FP8),
        ("NVIDIA-Nemotron-Nano-9B-v2", 8.89, Quantisation()),
        ("mistralai/Mistral-Large-3-675B-Instruct-2512", 673, FP8),
        ("hunyuan-a13b-instruct", 80.4, Quantisation()),
        ("inclusionAI/Ring-1T", 1000, Quantisation()),
        ("GLM-4.7-Flash", 29.9, Quantisation()),
    ],
)
def test_a_model_is_known_by_its_names(name: str, billions: float, formats: Quantisation) -> None:
    model = find_model(name)
    assert model.params() == pytest.approx(billions * 1e9, rel=0.01)
    assert model.quantisation == formats


def test_every_name_of_the_table_has_a_model_and_a_source() -> None:
    for name in hub_models():
        model = find_model(name)
        assert model == find_model(name.upper())
        assert model.source
        assert "/" not in model.name


def test_shapes_entered_by_hand_have_the_published_number_of_weights() -> None:
    published = [
        (model, float(stated[1]))
        for model in map(find_model, hub_models())
        if (stated := re.search(r"([\d.]+)e9 (weights )?are published", model.source))
    ]
    assert len({model.source for model, _ in published}) >= 130
    for model, billions in published:
        assert model.params() == pytest.approx(billions * 1e9, rel=0.01), model.name


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("H100 SXM 80GB", "h100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA-H100-PCIe", "h100-pcie"),
        ("H100 NVL", "h100-nvl"),
        ("A100", "a100-80gb"),
        ("A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie"),
        ("H20", "h20"),
        ("GB300", "gb300"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("RTX PRO 6000", "rtx-pro-6000"),
        ("AMD Instinct MI355X", "mi355x"),
        ("Gaudi 3", "gaudi-3"),
        ("TPU v6e", "tpu-v6e"),
        ("Ascend 910B", "ascend-910b"),
    ],
)
def test_a_device_is_known_by_its_names(name: str, device: str) -> None:
    assert find_hardware(name).name == device


LLAMA = {
    "model_type": "llama", "hidden_size": 512, "intermediate_size": 1024, "vocab_size": 100,
    "num_hidden_layers": 4, "num_attention_heads": 8, "max_position_embeddings": 1024,
}  # fmt: skip


def group(bits: int, kind: str, activations: object, **more: object) -> dict[str, object]:
    weights = {"num_bits": bits, "type": kind, **more}
    groups = {"group_0": {"weights": weights, "input_activations": activations}}
    return {"quant_method": "compressed-tensors", "config_groups": groups}


@pytest.mark.parametrize(
    ("stated", "formats"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, FP8_BLOCK),
        ({"quant_method": "fp8", "activation_scheme": "static"}, FP8),
        (group(4, "int", None), Quantisation(gemm="w4a16", experts="w4a16")),
        (group(8, "float", {}), FP8),
        (group(8, "int", {}), Quantisation(gemm="int8", experts="int8")),
        (group(4, "float", {}, group_size=16), Quantisation(gemm="nvfp4", experts="nvfp4")),
        ({"quant_method": "awq", "bits": 4}, Quantisation(gemm="w4a16", experts="w4a16")),
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 32},
            Quantisation(gemm="w4a16-g32", experts="w4a16-g32"),
        ),
        (
            {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"},
            Quantisation(gemm="nvfp4", experts="nvfp4", kv="fp8"),
        ),
    ],
)
def test_a_config_says_its_formats(
    tmp_path: Path, stated: dict[str, object], formats: Quantisation
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA, "quantization_config": stated}))
    assert find_model(str(path)).quantisation == formats


def test_formats_may_stand_in_a_file_beside(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    beside = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(beside))
    formats = find_model(str(tmp_path / "config.json")).quantisation
    assert formats == Quantisation(gemm="fp8", experts="fp8", kv="fp8")


@pytest.mark.parametrize(
    ("stated", "named"),
    [
        ({"quant_method": "bitsandbytes", "bits": 4}, "'bitsandbytes 4 bits'"),
        ({"quant_method": "gptq", "bits": 8}, "'gptq 8 bits'"),
        (group(6, "int", None), "int weights of 6 bits"),
        ([1], "quantization_config"),
        ({"config_groups": {"a": 3}}, "needs 'weights'"),
    ],
)
def test_an_unknown_quantisation_is_refused(tmp_path: Path, stated: object, named: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA, "quantization_config": stated}))
    with pytest.raises(ShapeError, match=named):
        find_model(str(path))
