"""Options of a cluster: the settings that they change, and wrong ones."""

from typing import Any

import pytest

from servetwin.app.scenario.options.policy import ClusterOptions, PolicyOptions
from servetwin.app.scenario.scenarios import build_scenario
from servetwin.app.scenario.servers import Servers
from servetwin.sim.experiments.scenario import ClusterConfig, Scenario
from servetwin.sim.step_times.profile import load_profile
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.checked import request
from tests.support.command import refused, with_server
from tests.support.paths import SAMPLE, SHEET_PROFILE

PROFILE = load_profile(SHEET_PROFILE)


SERVERS = Servers(Scenario(PROFILE.policy_config(), PROFILE))


def trace(*requests: Request) -> Trace:
    return Trace(requests or (request("a"),), "made")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--preset", "vlm-v1"], "preset: unknown preset 'vlm-v1'; did you mean 'vllm-v1'?"),
        (["--router", "leest-tokens"], "router: unknown router 'leest-tokens'; did you mean"),
        (["--replicas", "2", "--router", "x.py:Mine"], "router: x.py: "),
        (["--staleness-ms", "-5"], "--staleness-ms: -5.0 is impossible"),
        (["--prefill-decode", "0", "2"], "prefill_replicas and decode_replicas go together"),
        (["--prefill-decode", "-1", "-1"], "--prefill-decode: -1 is impossible"),
        (["--link-gb-per-s", "0"], "link: bytes_per_s must be above 0"),
        (["--prefill-decode", "1", "1", "--batching", "static"], "'static' cannot take in prompts"),
        (["--prefill-decode", "1", "1", *["--profile", "base-cpu"] * 3], "at most two profiles"),
        (["--autoscale", "qeue:max=2"], "autoscaling: unknown rule 'qeue'; did you mean 'queue'?"),
        (
            ["--autoscale", "queue:min=2,max=4"],
            "replicas: 1 is not possible; it must be from min 2",
        ),
        (["--faults", "crash:replica=1,at_s=1"], "faults: replica 1: there are replicas 0 to 0"),
        (
            ["--faults", "crash:replica=0,at_s=1"],
            "faults: every replica crashes or is cut off, and none is back; give",
        ),
        (["--quotas", "acme=5"], "quotas: acme=5: not TENANT=TOKENS_PER_S/BURST; write for"),
        (["--faults", "slow:replica=0,at_s=-1"], "field 'at_s' (seconds): '-1' is not possible"),
        (
            ["--faults", "slow:replica=0,at_s=1e30"],
            "field 'at_s' (seconds): '1e30' is not possible",
        ),
        (
            ["--faults", "slow:replica=0,at_s=1,factor=1e300"],
            "faults: factor: 1e+300 is not possible; it must be at most 1,000,000",
        ),
        (
            ["--autoscale", "queue:max=999999999"],
            "autoscaling: max: 999999999 is not possible; it must be at most 100,000",
        ),
        (
            ["--prefill-decode", "1", "1", "--faults", "slow:replica=0,at_s=1"],
            "faults, autoscaling, timeouts, hedges and quotas are of replicas that serve",
        ),
        (
            [*["--profile", "base-cpu"] * 2, "--autoscale", "queue:max=2"],
            "autoscaling starts replicas of one kind; give one profile",
        ),
    ],
)
def test_a_wrong_cluster_or_preset_is_one_line(options: list[str], message: str) -> None:
    assert message in refused("replay", SAMPLE, *with_server(*options))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"replicas": 3}, {"replicas": 3}),
        ({"router": "random", "staleness_ms": 250.0}, {"router": "random", "staleness_s": 0.25}),
        ({"prefill_decode": (2, 3)}, {"prefill_replicas": 2, "decode_replicas": 3}),
        ({"link_gb_per_s": 12.5}, {"link_bytes_per_s": 12.5e9}),
        ({"closed_loop": False}, {"closed_loop": False}),
        ({"autoscaling": "kv:max=2"}, {"autoscaling": "kv:max=2"}),
        ({"timeout_s": 2.5}, {"timeout_s": 2.5}),
        ({"quotas": "*=2/3"}, {"quotas": "*=2/3"}),
    ],
)
def test_cluster_options_become_settings(options: dict[str, Any], expected: dict[str, Any]) -> None:
    found = build_scenario(trace(), SERVERS, PolicyOptions(), ClusterOptions(**options))
    assert found.cluster == ClusterConfig(**expected)
