"""What pages get of a scenario that cannot be simulated."""

import pytest

from app.dashboard.simulations import simulate
from app.scenario.scenario_file import ScenarioError, parse_scenario


@pytest.mark.parametrize("achieved", ["overhead_s=1e300", "memory=1e-320"])
def test_figures_beyond_all_numbers_are_an_error_of_the_scenario(achieved: str) -> None:
    server = f"{{model: llama-3-8b, hardware: h100, efficiency: '{achieved}'}}"
    file = parse_scenario(f"server: {server}\nworkload: {{requests: 10}}", "test")
    with pytest.raises(ScenarioError, match="a setting is too large or too small to simulate"):
        simulate(file)
