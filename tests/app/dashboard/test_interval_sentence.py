"""What intervals cover, in a sentence."""

import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
from servetwin.app.dashboard.scenario_words import interval_sentence
from servetwin.app.dashboard.simulations import simulate
from servetwin.app.scenario.files.scenario_file import parse_scenario
from tests.support.dashboard_app import CERTAIN

FIXED = f"deployment: {{model: llama-3-8b, gpu: h100, efficiency: '{CERTAIN}'}}"
"""Step times without a spread."""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["a new draw of the workload", "a new draw of the uncertain step times", "seed 0"]),
        (FIXED, ["seed 0", "step times (computed from data sheets) is unknown"]),
        (
            f"workload: {{source: sample}}\n{FIXED}",
            ["No intervals", "a recorded trace does not vary"],
        ),
        (
            "workload: {source: sample}\ndeployment: {profile: base-cpu}",
            ["nine of ten of 20 replications", "a new draw of the uncertain step times"],
        ),
        (
            f"workload: {{source: sample}}\ncluster: {{replicas: 2, router: random}}\n{FIXED}",
            ["new choices of the random router"],
        ),
    ],
)
def test_what_the_intervals_hold_is_said(text: str, words: list[str]) -> None:
    said = interval_sentence(simulate(parse_scenario(f"{text}\nslo: {{}}", "test")))
    for word in words:
        assert word in said
