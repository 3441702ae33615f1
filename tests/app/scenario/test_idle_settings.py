"""Settings that change nothing are said; the ones that change something are not."""

from dataclasses import replace

import pytest

from servetwin.app.scenario.scenarios import idle_settings, unread_settings
from servetwin.policies.config import PolicyConfig
from servetwin.policies.presets import PRESETS
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
        ({"batching": "speculative"}, {}, 1, "batching: speculative has no drafts"),
        ({"batching": "speculative", "draft_rows": 3}, {}, 1, None),
        (
            {"draft_rows": 3},
            {},
            1,
            "draft_rows 3 changes nothing: only batching: speculative reads it, not continuous",
        ),
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


@pytest.mark.parametrize(
    ("settings", "unread"),
    [
        ({}, []),
        ({"draft_rows": 4, "batching": "mine.py:Mine"}, []),
        ({"draft_rows": 4, "prompt_token": False}, ["draft_rows", "prompt_token"]),
        ({"draft_rows": 4, "batching": "speculative"}, []),
        ({"long_prefill_tokens": 64, "batching": "chunked"}, ["long_prefill_tokens"]),
        ({"long_prefill_tokens": 64, "batching": "unified"}, []),
        ({"decodes_between_prefills": 2}, ["decodes_between_prefills"]),
        ({"pad_newcomers": True, "batching": "insertion"}, []),
        ({"padding": False}, ["padding"]),
        ({"reservation": "exact"}, ["reservation"]),
        ({"reservation": "exact", "kv": "contiguous"}, []),
        ({"kv_window_tokens": 64}, ["kv_window_tokens"]),
    ],
)
def test_settings_that_no_policy_reads_are_said(
    settings: dict[str, object], unread: list[str]
) -> None:
    config = PolicyConfig(token_budget=256, **settings)  # type: ignore[arg-type]  # of a table
    assert [note.split()[0] for note in unread_settings(config)] == unread


def test_every_setting_of_a_preset_is_read() -> None:
    said = {
        name: list(unread_settings(replace(PolicyConfig(token_budget=1 << 20), **preset.policies)))
        for name, preset in PRESETS.items()
    }
    assert said == {name: [] for name in PRESETS}
