"""Settings that change nothing are said; the ones that change something are not."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from servetwin.app.scenario.options.policy import PolicyOptions
from servetwin.app.scenario.scenarios import idle_settings, repeats_note
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.techniques.registry import build_setup
from servetwin.workloads.generators.lora_mix import LoraMix
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.command import servetwin
from tests.support.paths import SAMPLE

SERVER = build_setup("llama-3-8b", "h100").scenario()


def trace() -> Trace:
    return Trace((Request("a", 0.0, 100, 10), Request("b", 1.0, 100, 10)), "two")


def under(settings: dict[str, object], cluster: dict[str, int]) -> Scenario:
    return replace(
        SERVER,
        policies=replace(SERVER.policies, **settings),  # type: ignore[arg-type]  # of a table
        cluster=replace(SERVER.cluster, **cluster),  # type: ignore[arg-type]  # of a table
    )


SPLIT = {"prefill_replicas": 1, "decode_replicas": 2}


@pytest.mark.parametrize(
    ("settings", "cluster", "begins"),
    [
        ({}, {}, None),
        ({"draft_rows": 3}, {}, None),
        ({"adapter_slots": 3}, {}, "adapter_slots: no request asks for an adapter"),
        ({}, {"replicas": 3}, None),
        ({}, {"router": "random"}, "router random changes nothing: one server takes all"),
        ({}, {"router": "random", "replicas": 2}, None),
        ({}, SPLIT, None),
        ({}, {**SPLIT, "replicas": 3}, "replicas 3 changes nothing: prompts and decodes have"),
    ],
)
def test_a_setting_that_changes_nothing_is_said(
    settings: dict[str, object], cluster: dict[str, Any], begins: str | None
) -> None:
    notes = list(idle_settings(under(settings, cluster), trace()))
    assert len(notes) == (begins is not None)
    assert begins is None or notes[0].startswith(begins)


def test_every_command_with_scenarios_says_so() -> None:
    idle = (SAMPLE, "--model", "llama-3-8b", "--gpu", "h100", "--limit", 20, "--replicas", 3)
    split = (*idle, "--prefill-decode", 1, 2)
    searched = ("--slo", "e2e=60s", "--vary", "max_seqs=4")
    for command in (
        ("replay", *split, "--replications", 0),
        ("sweep", *split, *searched, "--rates", 2, "--processes", 1),
        ("capacity", *split, *searched, "--replications", 0, "--precision", 0.5),
    ):
        done = servetwin(*command)
        assert done.code == 0, done.err
        assert done.err.count("replicas 3 changes nothing") == 1, done.err


@pytest.mark.parametrize(
    ("second", "settings", "says"),
    [
        (range(6), {}, "the prompts repeat 48% of their tokens, which are computed anew"),
        (range(6), {"prefix_cache": True}, None),
        (range(6), {"kv": "contiguous"}, None),
        (range(9, 15), {}, None),
        ((), {}, None),
    ],
)
def test_prompts_that_repeat_without_a_prefix_cache_are_said(
    second: Iterable[int], settings: dict[str, Any], says: str | None
) -> None:
    ids = (tuple(range(6)), tuple(second))
    both = (Request(str(ids), 0.0, 100, 9, prefix, block_tokens=16) for prefix in ids)
    config, two = replace(SERVER.policies, **settings), Trace(tuple(both), "two")
    note = repeats_note(config, two, PolicyOptions())
    assert repeats_note(config, two, PolicyOptions(prefix_cache=False)) is None, "it was chosen"
    assert note is None if says is None else note is not None and note.startswith(says)


def test_a_mix_of_modules_for_a_server_without_slots_is_said() -> None:
    mixed = LoraMix({"sql": 0.5}).over(trace())
    (note,) = idle_settings(SERVER, mixed)
    assert note.startswith("--lora-modules changes nothing: the server has no adapter_slots")
    assert not list(idle_settings(under({"adapter_slots": 2}, {}), LoraMix({"a": 1}).over(trace())))
