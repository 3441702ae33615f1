"""The devices of servers, by the names of the catalogue."""

import pytest

from servetwin.app.scenario.options.deployment import Deployment
from servetwin.sim.experiments.fleet import times
from servetwin.sim.experiments.scenario import ClusterConfig, Scenario, devices, devices_of
from servetwin.sim.step_times.profile import load_profile
from tests.support.paths import KERNEL_PROFILES, SHEET_PROFILE


@pytest.mark.parametrize(
    ("name", "device"),
    [
        (SHEET_PROFILE, "h100"),
        (str(KERNEL_PROFILES / "llama-3.1-8b-a100-80gb-vllm.json"), "a100-80gb"),
        (str(KERNEL_PROFILES / "llama-3.1-8b-rtx-pro-6000-vllm.json"), "rtx-pro-6000"),
        (str(KERNEL_PROFILES / "llama-3.1-8b-l40s-vllm.json"), "l40s"),
        ("base-cpu", "AMD EPYC"),
    ],
)
def test_a_profile_has_the_device_of_the_catalogue_where_it_is_there(
    name: str, device: str
) -> None:
    assert devices_of(load_profile(name)) == (device, 1)


def test_ways_count_and_so_do_pools() -> None:
    options = Deployment(model="llama-3.1-8b", gpu="h100", techniques=("tensor-parallel:ways=2",))
    scenario = options.servers().scenario()
    assert devices(times(scenario, 3)) == {"h100": 6}
    profile = load_profile(SHEET_PROFILE)
    split = ClusterConfig(prefill_replicas=1, decode_replicas=2)
    assert devices(times(Scenario(profile.policy_config(), profile, split), 2)) == {"h100": 6}
