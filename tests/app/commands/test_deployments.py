"""Deployments by name: one command each, and refusals that say what would work."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from servetwin.app.scenario.options.deployment import Deployment
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.readers.native import write_trace
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.command import SERVER, refused, servetwin
from tests.support.paths import SHEET_PROFILE

NAMES = Path(__file__).parents[2] / "support" / "deployments.yaml"
SERVED = ("--server", "vllm@0.19")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("deployments") / "trace.jsonl"
    requests = (Request(str(i), 0.1 * i, 500, 20) for i in range(4))
    write_trace(Trace(tuple(requests), "made"), path)
    return path


NONE = (
    "no server is named: add --model llama-3-8b --gpu h100, or --profile base-cpu for the bundled "
    "engine"
)


@pytest.mark.parametrize(
    "command",
    [
        ("replay",), ("replay", "compare", "static", "vllm-v1"),
        ("capacity", "--slo", "ttft=1s"), ("capacity", "--replicas", "--slo", "ttft=1s"),
        ("sweep", "--slo", "ttft=1s", "--vary", "max_seqs=2,4"), ("replay", "--preset", "vllm-v1"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_command_without_a_server_says_so_in_one_line(trace: Path, command: list[str]) -> None:
    assert refused(*command, trace) == f"servetwin: {NONE}"


def test_a_scenario_without_a_server_is_named_and_takes_one_of_the_options(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("workload: {requests: 20}")
    command = ("replay", "--scenario", path, "--replications", 0)
    assert refused(*command) == f"servetwin: {path}: {NONE}"
    assert servetwin(*command, *SERVER).out.startswith("profile base-cpu ")


def test_a_library_call_without_a_server_says_the_same(trace: Path) -> None:
    with pytest.raises(PolicyError, match=f"^{NONE}$"):
        Deployment().scenario()
    served = ("--gpu", "h100", "--server", "vllm@0.19")
    line = refused("replay", trace, *served)
    assert line == "servetwin: --server: vllm@0.19 names no model; add --model"


def test_a_grid_names_its_server_or_varies_it(trace: Path) -> None:
    sweep = ("sweep", trace, "--slo", "ttft=1s", "--processes", 1)
    assert servetwin(*sweep, *SERVER).out.startswith("profile base-cpu (measured here: ")
    done = servetwin(*sweep, "--vary", f"profile=base-cpu,{SHEET_PROFILE}")
    assert done.out.startswith("2 points"), done.err


@pytest.mark.parametrize(
    "named", yaml.safe_load(NAMES.read_text()), ids=lambda named: named["model"]
)
def test_a_deployment_is_simulated_by_name_and_from_a_file(
    trace: Path, tmp_path: Path, named: dict[str, Any]
) -> None:
    layout = ",".join(f"{name}={width}" for name, width in named["layout"].items())
    options = ("--model", named["model"], "--gpu", named["gpu"], "--layout", layout, *SERVED)
    done = servetwin("replay", trace, *options, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["tpot_s"]["mean"] > 1e-3
    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump({"deployment": {**named, "server": SERVED[1]}}, sort_keys=False))
    again = json.loads(servetwin("replay", trace, "--scenario", path, "--json").out)
    assert (again["tpot_s"], again["layout"]) == (found["tpot_s"], found["layout"])


def test_a_command_line_is_a_server(trace: Path) -> None:
    command = "vllm serve openai/gpt-oss-20b --max-num-seqs 64 --gpu-memory-utilization 0.8"
    done = servetwin("replay", trace, "--gpu", "h100", "--server", command)
    assert "at most 64 sequences" in done.out
    assert "unified+grouped+prefix" in done.out


def test_a_server_brings_its_limits_and_its_share_of_the_memory(trace: Path) -> None:
    plain, served, own = (
        servetwin("replay", trace, "--model", "llama-3.1-8b", "--gpu", "h100", *more).out
        for more in ((), SERVED, (*SERVED, "--set", "max_seqs=16"))
    )
    assert "478984 KV tokens, at most 256 sequences" in plain
    assert "446068 KV tokens, at most 1024 sequences" in served
    assert "at most 16 sequences" in own


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("deepseek-v3", "h200", "--layout", "tp=4"), "use 8 devices (--layout), a smaller format"),
        (
            ("deepseek-v3", "h200", "--layout", "tp=8,ep=3"),
            "does not divide tp x dp = 8; give ep=8",
        ),
        (("llama-3.1-8b", "h100", "--layout", "tp=3"), "3 ways do not divide the 32 heads"),
        (("nvidia/DeepSeek-R1-FP4", "mi300x"), "mi300x runs no nvfp4 weights; take a checkpoint"),
        (("llama-9", "h100"), "no model 'llama-9'"),
        (("llama-3.1-8b", "h100", "--server", "vlm"), "--server: 'vlm' names no server; give"),
        (("llama-3.1-8b", "h100", "--times", "sheets"), "unknown 'sheets'; did you mean 'sheet'?"),
        (("llama-3.1-8b", "h100", "--times", "layers"), "'layers' is none of kernels|layers:DIR"),
        (
            ("llama-3.1-8b", "h100", "--times", "phases:x.csv", "--technique", "fp8"),
            "--technique fp8: tables of phases know nothing of it; take --times sheet",
        ),
        (
            ("llama-3.1-8b", "h100", "--times", "kernels", "--technique", "early-exit"),
            "--technique early-exit: tables of kernels know nothing of it",
        ),
        (
            ("llama-3.1-8b", "h100", *SERVED, "--times", "kernels:sglang"),
            "--times kernels:sglang: --server is vllm; keep one of them",
        ),
    ],
)
def test_what_cannot_be_says_what_would(trace: Path, options: tuple[str, ...], says: str) -> None:
    model, gpu, *more = options
    assert says in refused("replay", trace, "--model", model, "--gpu", gpu, *more)


def test_models_and_devices_are_listed_with_their_evidence() -> None:
    models = servetwin("list", "models", "deepseek-r1")
    assert "deepseek-ai/DeepSeek-R1 " in models.out
    assert "fp8-block" in models.out
    devices = servetwin("list", "devices", "--json", "H100 SXM")
    (h100,) = [one for one in json.loads(devices.out)["devices"] if one["name"] == "h100"]
    assert h100["memory_bytes"] == 80e9
    assert "no name has 'zzz' inside" in refused("list", "models", "zzz")
