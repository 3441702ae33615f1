"""The command of a server: what is printed is what is read, and manifests are of Kubernetes."""

import pytest
import yaml

from servetwin.app.plan.server_command import ServerCommand, served_name
from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.catalogue.layout import Layout
from servetwin.sim.catalogue.servers import read_server
from servetwin.sim.experiments.fewest_devices import layouts
from servetwin.workloads.errors import PolicyError

LAYOUTS = list(layouts(find_model("qwen3-30b-a3b")))


@pytest.mark.parametrize("backend", ["vllm", "sglang"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_command_says_its_layout_and_limits(backend: str, layout: Layout) -> None:
    command = ServerCommand.of(backend, "qwen3-30b-a3b")
    read = read_server(command.on(layout, max_model_len=4096, token_budget=2048).text)
    assert (read.backend, read.layout, read.model) == (backend, layout, "Qwen/Qwen3-30B-A3B")
    assert read.policies == {"max_model_len": 4096, "token_budget": 2048}


def test_a_command_line_keeps_its_flags_and_a_name_its_version() -> None:
    given = "vllm serve Qwen/Qwen3-14B --quantization fp8 --tensor-parallel-size 8"
    command = ServerCommand.of(given, "qwen3-14b").on(LAYOUTS[-3])
    read = read_server(command.text)
    assert read.formats == {"gemm": "fp8", "experts": "fp8"}
    assert read.layout == LAYOUTS[-3]
    versioned = ServerCommand.of("vllm@0.19.1", "qwen3-14b")
    assert versioned.image == "vllm/vllm-openai:v0.19.1"
    assert read_server(versioned.deployment("h100").server or "").version == "0.19.1"


def test_a_model_is_served_by_its_name_on_the_hub_or_its_folder() -> None:
    assert served_name("llama-3-8b") == "meta-llama/Meta-Llama-3-8B"
    assert served_name("meta-llama/Llama-3.3-70B-Instruct") == "meta-llama/Llama-3.3-70B-Instruct"
    assert served_name("models/mine/config.json") == "models/mine"


@pytest.mark.parametrize(
    ("backend", "roles"),
    [
        ("vllm", {"prefill": '"kv_role":"kv_producer"', "decode": '"kv_role":"kv_consumer"'}),
        ("sglang", {p: f"--disaggregation-mode {p}" for p in ("prefill", "decode")}),
    ],
)
def test_prefill_and_decode_apart_are_two_commands(backend: str, roles: dict[str, str]) -> None:
    together = ServerCommand.of(backend, "qwen3-14b").on(Layout(2), token_budget=4096)
    apart = together.apart()
    assert apart.keys() == roles.keys()
    for phase, command in apart.items():
        assert roles[phase] in command.text
        read, plain = read_server(command.text), read_server(together.text)
        assert (read.layout, read.policies) == (plain.layout, plain.policies)


def test_a_server_without_commands_is_refused() -> None:
    with pytest.raises(PolicyError, match="--server: trtllm is not planned; vllm or sglang"):
        ServerCommand.of("trtllm", "qwen3-14b")


@pytest.mark.parametrize(
    ("backend", "gpu", "resource"),
    [("vllm", "h100", "nvidia.com/gpu"), ("sglang", "mi300x", "amd.com/gpu")],
)
def test_a_manifest_has_what_kubernetes_requires(backend: str, gpu: str, resource: str) -> None:
    command = ServerCommand.of(backend, "qwen3-14b").on(LAYOUTS[-1])
    deployment, service = yaml.safe_load_all(command.manifest(gpu, gpu, 8, 3))
    assert (deployment["apiVersion"], deployment["kind"]) == ("apps/v1", "Deployment")
    assert (service["apiVersion"], service["kind"]) == ("v1", "Service")
    spec = deployment["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"].items() <= labels.items()
    assert service["spec"]["selector"].items() <= labels.items()
    assert spec["replicas"] == 3
    (container,) = spec["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {resource: 8}
    assert container["command"][: len(command.words)] == list(command.words)
    port = container["ports"][0]
    assert container["command"][-1] == str(port["containerPort"])
    assert container["readinessProbe"]["httpGet"]["port"] == port["name"]
    assert service["spec"]["ports"][0]["targetPort"] == port["name"]
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in spec["template"]["spec"]["volumes"]}
