"""Settings that change nothing are said; the ones that change something are not."""

from dataclasses import replace

import pytest

from servetwin.app.scenario.scenarios import idle_settings
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.techniques.registry import build_setup
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace

SERVER = build_setup("llama-3-8b", "h100").scenario()


def trace(samples: int = 1) -> Trace:
    return Trace((Request("a", 0.0, 100, 10), Request("b", 1.0, 100, 10, samples=samples)), "two")


def under(settings: dict[str, object], cluster: dict[str, int]) -> Scenario:
    return replace(
        SERVER,
        policies=replace(SERVER.policies, **settings),  # type: ignore[arg-type]  # of a table
        cluster=replace(SERVER.cluster, **cluster),  # type: ignore[arg-type]  # of a table
    )


SPLIT = {"prefill_replicas": 1, "decode_replicas": 2}


@pytest.mark.parametrize(
    ("settings", "cluster", "samples", "begins"),
    [
        ({}, {}, 1, None),
        ({"batching": "beam"}, {}, 1, "batching: beam: every request of this trace wants one"),
        ({"batching": "beam"}, {}, 2, None),
        ({"draft_rows": 3}, {}, 1, None),
        ({}, {"replicas": 3}, 1, None),
        ({}, SPLIT, 1, None),
        ({}, {**SPLIT, "replicas": 3}, 1, "replicas 3 changes nothing: prompts and decodes have"),
    ],
)
def test_a_setting_that_changes_nothing_is_said(
    settings: dict[str, object], cluster: dict[str, int], samples: int, begins: str | None
) -> None:
    notes = list(idle_settings(under(settings, cluster), trace(samples)))
    assert len(notes) == (begins is not None)
    assert begins is None or notes[0].startswith(begins)
