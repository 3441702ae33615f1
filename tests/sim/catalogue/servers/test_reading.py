"""Command lines, files and logs of servers become settings; what is wrong in them is one line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from servetwin.policies.config import PolicyConfig
from servetwin.sim.catalogue.layout import Layout
from servetwin.sim.catalogue.servers import ServerSettings, read_server
from servetwin.workloads.errors import PolicyError

VLLM = "vllm serve Qwen/Qwen3-235B-A22B-FP8 "
SGLANG = "python3 -m sglang.launch_server --model-path zai-org/GLM-4.6-FP8 "


@pytest.mark.parametrize(
    ("line", "layout", "replicas"),
    [
        (VLLM + "-tp 4", Layout(4), 1),
        (VLLM + "-tp=2 --data-parallel-size 2 --enable-expert-parallel", Layout(2, dp=2, ep=4), 1),
        (VLLM + "--pipeline_parallel_size=2 --tensor-parallel-size 8", Layout(8, 2), 1),
        (SGLANG + "--tp 8 --ep 8", Layout(8, ep=8), 1),
        (SGLANG + "--tp-size 8 --dp-size 8 --enable-dp-attention", Layout(1, dp=8), 1),
        (SGLANG + "--tp 8 --dp 4 --enable-dp-attention --ep-size 8", Layout(2, dp=4, ep=8), 1),
        (SGLANG + "--tp 4 --dp 2", Layout(4), 2),
        ("trtllm-serve nvidia/X --tp_size 8 --ep_size 4 --pp_size 2", Layout(8, 2, ep=4), 1),
        ("trtllm-serve m --tp_size 8 --moe_tensor_parallel_size 2", Layout(8, ep=4), 1),
    ],
)
def test_widths_of_a_command_line(line: str, layout: Layout, replicas: int) -> None:
    settings = read_server(line)
    assert (settings.layout, settings.replicas) == (layout, replicas)


def test_a_command_line_in_full() -> None:
    settings = read_server(
        "CUDA_VISIBLE_DEVICES=0,1 vllm serve \\\n  --host 0.0.0.0 --port 8000 RedHatAI/X-FP8 \\\n"
        "  --max-num-seqs 512 --max-num-batched-tokens 16K --max-model-len 32k --block-size=32 "
        "--no-enable-prefix-caching --gpu-memory-utilization 0.95 --kv-cache-dtype fp8_e4m3 "
        "--quantization fp8 --served-model-name a b --api-key k -O3 --enforce-eager "
        "--hf-overrides '{\"a\": 1}' --scheduling-policy priority --no-async-scheduling "
        "--max-num-active-seqs 300 --max-num-queued-tokens 64k --long-prefill-token-threshold 512 "
        "--long-prefill-token-threshold-adaptive  # two"
    )
    assert settings.backend == "vllm"
    assert settings.model == "RedHatAI/X-FP8"
    assert settings.memory_share == 0.95
    assert settings.formats == {"gemm": "fp8", "experts": "fp8", "kv": "fp8"}
    assert dict(settings.policies) == {
        "max_seqs": 300, "token_budget": 16384, "max_model_len": 32000, "block_tokens": 32,
        "prefix_cache": False, "queue_order": "priority", "decide_ahead": False,
        "queued_tokens_limit": 64000, "long_prefill_tokens": 512, "long_prefill_adaptive": True,
    }  # fmt: skip
    assert settings.notes == (
        "--optimization-level: compilation other than by default; not simulated",
        "--enforce-eager: steps without CUDA graphs take longer; not simulated",
    )


@pytest.mark.parametrize(
    ("flags", "adapters"),
    [
        ("", None),
        ("--enable-lora", (16, 1)),
        ("--enable-lora --max-loras 4 --max-lora-rank=64", (64, 4)),
        ("--max-loras 4", None),
    ],
)
def test_adapters_of_a_command_line(flags: str, adapters: tuple[int, int] | None) -> None:
    settings = read_server(VLLM + flags)
    assert (settings.adapters, settings.notes) == (adapters, ())


def test_a_container_names_the_version() -> None:
    line = "docker run --gpus all -p 8000:8000 vllm/vllm-openai:v0.19.0 --model a/b -tp 2"
    settings = read_server(line)
    assert (settings.version, settings.model, settings.layout.tp) == ("0.19.0", "a/b", 2)


@pytest.mark.parametrize(
    ("name", "device", "memory_bytes", "sizes", "preset"),
    [
        ("vllm@0.19", "h100", 80e9, (1024, 8192), "vllm-v1"),
        ("vllm@0.11.0", "a100-80gb", 80e9, (256, 2048), "vllm-v1"),
        ("vllm@0.8.5", "a100-80gb", 80e9, (1024, 8192), "vllm-0.8"),
        ("vllm@v0.11", "rtx-4090", 24e9, (256, 2048), "vllm-v1"),
        ("sglang@0.5.5.post1", "h200", 141e9, (2048, 8192), "sglang"),
        ("sglang", "b200", 192e9, (2048, 16384), "sglang"),
        ("TensorRT-LLM@1.2.0rc1", "h100", 80e9, (2048, 8192), "tensorrt-llm"),
    ],
)
def test_defaults_by_version_and_device(
    name: str, device: str, memory_bytes: float, sizes: tuple[int, int], preset: str
) -> None:
    settings = read_server(name)
    policies = PolicyConfig(**settings.policy_settings(memory_bytes, device))
    assert (policies.max_seqs, policies.token_budget) == sizes
    assert settings.preset == preset


def test_what_is_given_wins_over_defaults() -> None:
    settings = read_server(VLLM + "--max-num-batched-tokens 512")
    policies = settings.policy_settings(80e9, "h100")
    assert (policies["token_budget"], policies["max_seqs"]) == (512, 512)


LOG = """\
\x1b[1;36m(APIServer pid=1)\x1b[0;0m INFO 04-19 15:31:11 [api_server.py:12] vLLM API server version 0.19.0
(APIServer pid=1) INFO 04-19 [utils.py:233] non-default args: {'model_tag': 'a/m', 'max_num_seqs': 64}
(APIServer pid=1) INFO 04-19 [scheduler.py:239] Chunked prefill is enabled with max_num_batched_tokens=4096.
(EngineCore pid=2) INFO [core.py:107] Initializing a V1 LLM engine (v0.19.2rc1.dev8+g4b7) with config: \
model='a/m', speculative_config=SpeculativeConfig(method='eagle', model='draft'), dtype=torch.bfloat16, \
max_seq_len=98304, tensor_parallel_size=2, pipeline_parallel_size=1, data_parallel_size=1, \
decode_context_parallel_size=1, quantization=modelopt_fp4, enforce_eager=False, kv_cache_dtype=fp8_e4m3, \
seed=0, enable_prefix_caching=True, chunked_prefill_enabled=True
(EngineCore pid=2) INFO [kv_cache_utils.py:2032] GPU KV cache size: 207,842 tokens, \
Maximum concurrency for 98,304 tokens per request: 2.11x
"""  # noqa: E501


def test_the_log_of_vllm(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    path.write_text(LOG)
    settings = read_server(str(path))
    assert (settings.backend, settings.version) == ("vllm", "0.19.2rc1.dev8+g4b7")
    assert (settings.model, settings.layout) == ("a/m", Layout(2))
    assert settings.formats == {"gemm": "nvfp4", "experts": "nvfp4", "kv": "fp8"}
    assert dict(settings.policies) == {
        "max_seqs": 64, "token_budget": 4096, "max_model_len": 98304, "kv_tokens": 207842,
        "prefix_cache": True,
    }  # fmt: skip
    assert settings.notes == ("--speculative-config: name it with --technique; not simulated",)


def test_blocks_of_an_older_log(tmp_path: Path) -> None:
    path = tmp_path / "old.log"
    path.write_text(
        "INFO Initializing an LLM engine (v0.6.3) with config: model='m', seed=0\n"
        "INFO 10-01 gpu_executor.py:122] # GPU blocks: 2,588, # CPU blocks: 2048\n"
    )
    settings = read_server(str(path))
    assert settings.policies["kv_tokens"] == 41408
    assert settings.preset == "vllm-0.6"


def test_the_log_of_sglang(tmp_path: Path) -> None:
    path = tmp_path / "sglang.log"
    path.write_text(
        "[2026-02-26 05:19:58] server_args=ServerArgs(model_path='z/G', quantization=None, "
        "kv_cache_dtype='auto', mem_fraction_static=0.83, max_running_requests=None, "
        "chunked_prefill_size=8192, schedule_policy='fcfs', page_size=1, tp_size=8, dp_size=8, "
        "ep_size=8, enable_dp_attention=True, disable_radix_cache=False, cuda_graph_bs=[1, 2])\n"
        "[2026-02-26 05:21:00 TP0] max_total_num_tokens=1100000, chunked_prefill_size=8192, "
        "max_running_requests=2048, context_len=131072\n"
    )
    settings = read_server(str(path))
    assert (settings.model, settings.layout) == ("z/G", Layout(1, dp=8, ep=8))
    assert settings.memory_share == 0.83
    assert dict(settings.policies) == {
        "max_seqs": 2048, "token_budget": 8192, "max_model_len": 131072, "block_tokens": 1,
        "kv_tokens": 1100000, "prefix_cache": True, "queue_order": "fcfs",
    }  # fmt: skip


YAML = """\
tensor_parallel_size: 8
moe_expert_parallel_size: 8
enable_attention_dp: true
max_batch_size: 256
max_num_tokens: 4096
enable_chunked_prefill: true
kv_cache_config: {free_gpu_memory_fraction: 0.85, dtype: fp8, enable_block_reuse: false}
cuda_graph_config: {enable_padding: true}
"""


def test_a_file_of_tensorrt_llm(tmp_path: Path) -> None:
    path = tmp_path / "config.yml"
    path.write_text(YAML)
    for text in (str(path), f"trtllm-serve nvidia/DeepSeek-R1-FP4 --config {path} --port 80"):
        settings = read_server(text)
        assert settings.backend == "trtllm"
        assert settings.layout == Layout(1, dp=8, ep=8)
        assert settings.free_memory_share == 0.85
        assert settings.formats == {"kv": "fp8"}
        assert settings.policies["prefix_cache"] is False
    assert read_server(text).model == "nvidia/DeepSeek-R1-FP4"


def test_a_file_of_vllm(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("model: a/b\ntensor-parallel-size: 2\nmax-num-seqs: 7\n")
    assert read_server(str(path)) == ServerSettings(
        "vllm", None, "a/b", Layout(2), policies={"max_seqs": 7}
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (VLLM + "--tensor-paralel-size 4", "did you mean '--tensor-parallel-size'?"),
        (VLLM + "--zzz 4", "vllm has no flag '--zzz'; leave it out"),
        (VLLM + "--max-num-seqs", "--max-num-seqs has no value; write --max-num-seqs VALUE"),
        (VLLM + "--max-num-seqs many", "--max-num-seqs many: not a whole number of at least 1"),
        (VLLM + "--max-num-seqs 0", "--max-num-seqs 0: not a whole number of at least 1"),
        (VLLM + "--gpu-memory-utilization 90", "not a share above 0 and up to 1, such as 0.9"),
        (VLLM + "--quantization fp9", "--quantization fp9: did you mean 'fp8'?"),
        (VLLM + "--kv-cache-dtype int3", "--kv-cache-dtype int3: "),
        (VLLM + "another/model", "'another/model' belongs to no flag; leave it out"),
        (VLLM + "--hf-overrides '{", "No closing quotation"),
        (SGLANG + "--tp 8 --dp 3 --enable-dp-attention", "--dp-size 3 does not divide --tp-size 8"),
        ("trtllm-serve m --config no.yml", "no.yml: No such file or directory"),
        ("llama-server -m x.gguf", "names no server; give a name such as vllm@0.19"),
        ("", "names no server"),
    ],
)
def test_what_is_wrong_is_one_line(text: str, line: str) -> None:
    with pytest.raises(PolicyError) as error:
        read_server(text)
    assert line in str(error.value)
    assert str(error.value).startswith("--server: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (lambda p: p.write_text("- 1\n"), "fields such as 'tensor_parallel_size: 8' are needed"),
        (lambda p: p.write_text("a: [\n"), "while parsing"),
        (lambda p: p.write_text("colour: red\n"), "no field of a server"),
        (lambda p: p.write_bytes(b"\xff\xfe\x00"), "unacceptable character"),
    ],
)
def test_a_bad_file_is_one_line(
    tmp_path: Path, content: Callable[[Path], object], line: str
) -> None:
    path = tmp_path / "x.yaml"
    content(path)
    with pytest.raises(PolicyError, match=line) as error:
        read_server(str(path))
    assert "\n" not in str(error.value)
