"""Named workloads: complete, with sources, and refused with the nearest name."""

import pytest

from servetwin.workloads.errors import TraceError
from servetwin.workloads.generators.named import NAMED, find_named


def test_the_scenarios_of_the_notes_have_names() -> None:
    assert set(NAMED) == {
        "chat", "code-completion", "batch-processing", "evaluation", "rl-rollouts", "long-thinking",
    }  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_a_named_workload_says_what_is_sourced_and_how_long_and_often(name: str) -> None:
    workload = find_named(name)
    assert any(year in workload.source for year in ("2021", "2023", "2024", "2025"))
    wanted = {"requests", "arrivals", "rate", "prompt-law", "prompt-mean", "output-mean"}
    assert wanted <= set(workload.options)
    assert "--rate " in workload.as_arguments()


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(TraceError, match="mean 'chat'"):
        find_named("chats")
