"""``replay`` of a fleet: one paragraph says how many served, what they cost, and what was lost."""

import json
from pathlib import Path

import pytest

from servetwin.workloads.program.package import shipped_json
from tests.support.command import servetwin

SCENARIO = """
workload: {requests: 200, rate_per_s: 20, prompt_tokens: 300, output_tokens: 40}
deployment: {model: llama-3-8b, gpu: h100}
cluster: {replicas: 2, faults: "crash:replica=0,at_s=3,for_s=2", detection_s: 1, retries: 3}
slo: {ttft_ms: 1000}
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "day.yaml"
    path.write_text(SCENARIO)
    return path


def test_a_fleet_says_its_size_hours_price_bound_attainment_and_losses(scenario: Path) -> None:
    found = json.loads(servetwin("replay", "--scenario", scenario, "--json").out)
    fleet, hours = found["fleet"], found["fleet"]["replica_hours"]
    assert fleet["price"] == pytest.approx(
        hours * shipped_json("sim/catalogue/prices.json")["per_hour"]["h100"]
    )
    assert 0 < fleet["least_replica_hours"] < hours
    assert 0 < found["slo_attainment"] < 1
    said = " ".join(servetwin("replay", "--scenario", scenario).out.split())
    _, _, line = said.partition("1 to 2 replicas serve, ")
    parts = line.split("; ")[:7]
    assert parts[0].endswith(" replica-hours")
    assert parts[1] == f"{fleet['price']:,.2f} at list prices"
    assert parts[2].startswith("an ideal autoscaler needs at least ")
    assert parts[3] == f"SLO attainment {100 * found['slo_attainment']:.2f} %"
    assert parts[4] == "crashes 1"
    assert parts[5] == f"lost {fleet['lost']}"
    assert parts[6].startswith(f"retried {fleet['retried']}")
