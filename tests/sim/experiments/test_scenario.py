"""Whole scenarios through ``servetwin replay``: clusters, several profiles, closed loops."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from servetwin.policies.config import PolicyConfig
from servetwin.policies.registry import ROUTERS
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.experiments.scenario import ClusterConfig, Scenario
from servetwin.sim.explain.explain import PARTS
from servetwin.sim.records.run import Run, load_run
from servetwin.sim.step_times.profile import Profile, load_profile
from servetwin.sim.techniques.registry import build_setup
from servetwin.workloads.errors import PolicyError, ServetwinError
from servetwin.workloads.reading import read_trace
from servetwin.workloads.trace import Trace
from tests.support.checked import request
from tests.support.command import SERVER, servetwin, with_server
from tests.support.paths import SAMPLE, SHEET_PROFILE

COMPUTED = load_profile(SHEET_PROFILE)
MEASURED = load_profile("base-cpu")


def replay(folder: Path, trace: Path, *options: object) -> Run:
    done = servetwin("replay", trace, "--replications", 0, "--out", folder, *with_server(*options))
    assert done.code == 0, done.err
    return load_run(folder)


@pytest.mark.parametrize("router", ROUTERS)
def test_every_router_finishes_the_sample_on_three_replicas(tmp_path: Path, router: str) -> None:
    run = replay(tmp_path, SAMPLE, "--replicas", 3, "--router", router, "--prefix-cache")
    assert set(run.requests["status"]) == {"finished"}
    assert sorted(run.requests["replica"].unique()) == [0, 1, 2]
    assert sorted(run.steps["replica"].unique()) == [0, 1, 2]
    assert (run.scenario["cluster"]["replicas"], run.scenario["cluster"]["router"]) == (3, router)


@pytest.mark.parametrize(
    ("options", "first", "last"),
    [
        (["--prefill-decode", "1", "1"], {0}, {1}),
        (["--prefill-decode", "2", "3"], {0, 1}, {2, 3, 4}),
        (["--preset", "distserve"], {0}, {1}),
        (["--prefill-decode", "1", "2", "--profile", SHEET_PROFILE], {0}, {1, 2}),
        (["--prefill-decode", "1", "1", *["--profile", "base-cpu"] * 2], {0}, {1}),
    ],
)
def test_prompts_and_decodes_have_servers_of_their_own(
    tmp_path: Path, options: list[str], first: set[int], last: set[int]
) -> None:
    run = replay(tmp_path, SAMPLE, *options)
    requests, steps = run.requests, run.steps
    assert set(requests["status"]) == {"finished"}
    long = requests["output_tokens"] > 1
    assert set(requests.loc[long, "replica"]) == last
    assert set(requests.loc[~long, "replica"]) <= first
    assert not steps.loc[steps["replica"].isin(last), "prefill_chunks"].any()
    moves = run.handovers
    assert len(moves) == long.sum()
    assert (moves["prefill_end_s"] < moves["transfer_end_s"]).all(), "a link takes time"
    assert (moves["transfer_end_s"] <= moves["decode_start_s"]).all()


def test_a_link_takes_the_bytes_of_a_prompt_over_its_bandwidth(tmp_path: Path) -> None:
    """131,072 bytes per token (llama-3-8b in bfloat16) over 1 GB/s; no other request is there."""
    options = ("--profile", SHEET_PROFILE, "--prefill-decode", 1, 1, "--link-gb-per-s", 1)
    run = replay(tmp_path, SAMPLE, *options, "--limit", 1)
    move = run.handovers.iloc[0]
    prompt = run.requests["prompt_tokens"].iloc[0]
    took_s = move["transfer_end_s"] - move["prefill_end_s"]
    assert took_s == pytest.approx(prompt * 131_072 / 1e9)


@pytest.mark.parametrize(
    "options",
    [
        ["--replicas", "2", "--router", "random"],
        ["--prefill-decode", "1", "2", "--kv-tokens", "1024"],
        ["--profile", SHEET_PROFILE, "--profile", "base-cpu"],
    ],
)
def test_the_folder_of_a_cluster_is_explained(tmp_path: Path, options: list[str]) -> None:
    run = replay(tmp_path, SAMPLE, *options, "--limit", "60")
    done = servetwin("explain", tmp_path, "--slowest", 60, "--json")
    assert done.code == 0, done.err
    found = {one["request_id"]: one for one in json.loads(done.out)}
    assert len(found) == len(run.requests) == 60
    for row in run.requests.itertuples(index=False):
        parts_s = found[str(row.request_id)]["parts_s"]
        assert set(parts_s) == set(PARTS)
        assert sum(parts_s.values()) == pytest.approx(row.e2e_s, abs=1e-9)
        assert min(parts_s.values()) >= -1e-9


@pytest.mark.parametrize(
    "options",
    [
        ["--replicas", "2", "--router", "power-of-two", "--staleness-ms", "50"],
        ["--preset", "splitwise", "--profile", SHEET_PROFILE],
        ["--preset", "sglang", "--closed-loop", "--kv-tokens", "1024"],
    ],
)
def test_a_run_can_be_run_again_from_its_folder(tmp_path: Path, options: list[str]) -> None:
    run = replay(tmp_path, SAMPLE, *options, "--seed", 7)
    written = run.scenario
    again = Scenario(
        PolicyConfig(**written["policies"]),
        load_profile(written["profile"]),
        ClusterConfig(**written["cluster"]),
    )
    rerun = run_once(read_trace(SAMPLE), again, seed=written["seed"])
    pd.testing.assert_frame_equal(rerun.requests, run.requests, check_exact=True)


@pytest.mark.parametrize(
    "structure",
    [
        ["--structure", "multi-turn", "--sessions", "6", "--rate", "0.5"],
        ["--structure", "agentic", "--sessions", "2", "--rate", "0.01"],
        ["--closed-loop", "5", "--each", "6", "--think-time", "lognormal:median=2"],
    ],
)
def test_generated_conversations_wait_for_their_answers(
    tmp_path: Path, structure: list[str]
) -> None:
    path = tmp_path / "talk.jsonl"
    assert servetwin("workload", "generate", "--out", path, *structure).code == 0
    asked = {r.request_id: r for r in read_trace(path)}
    followers = [r for r in asked.values() if r.parent_ids and r.delay_s is not None]
    assert followers
    options = ("--profile", SHEET_PROFILE, "--kv-tokens", "unlimited", "--prefix-cache")
    closed = replay(tmp_path / "closed", path, *options)
    opened = replay(tmp_path / "open", path, *options, "--open-loop")
    ends_s, sent_s = column(closed, "last_token_s"), column(closed, "scheduled_s")
    for follower in followers:
        waited_s = sent_s[follower.request_id] - ends_s[follower.parent_ids[0]]
        assert waited_s == pytest.approx(follower.delay_s, abs=1e-6)
    assert column(opened, "scheduled_s") == {name: r.arrival_s for name, r in asked.items()}
    for run in (closed, opened):
        assert set(run.requests["status"]) == {"finished"}
        assert len(run.requests) == len(asked)


def column(run: Run, name: str) -> dict[str, Any]:
    """A column of the requests, by request."""
    return dict(zip(run.requests["request_id"], run.requests[name], strict=True))


def test_followers_of_a_refused_request_are_cancelled() -> None:
    first = request("first", prompt=900, output=200)
    talk = [first, request("other")]
    talk += [
        replace(request(name, 1.0), parent_ids=(parent,) if parent else (), delay_s=1.0)
        for name, parent in (("second", "first"), ("third", "second"), ("next", "other"))
    ]
    policies = replace(COMPUTED.policy_config(), max_model_len=1000)
    run = run_once(Trace(tuple(talk), "talk"), Scenario(policies, COMPUTED))
    assert column(run, "status") == {
        "first": "refused", "second": "cancelled", "third": "cancelled",
        "other": "finished", "next": "finished",
    }  # fmt: skip


def test_a_cluster_of_one_is_one_server() -> None:
    trace = read_trace(SAMPLE)
    policies = replace(COMPUTED.policy_config(), kv_tokens=2048, prefix_cache=True)
    alone = run_once(trace, Scenario(policies, COMPUTED))
    closed = run_once(trace, Scenario(policies, COMPUTED, ClusterConfig(closed_loop=True)))
    pd.testing.assert_frame_equal(alone.requests, closed.requests, check_exact=True)


@pytest.mark.parametrize("cluster", [ClusterConfig(), ClusterConfig(replicas=2)])
def test_the_seed_draws_the_noise(cluster: ClusterConfig) -> None:
    trace = Trace(read_trace(SAMPLE).requests[:20], "sample")
    scenario = Scenario(MEASURED.policy_config(), MEASURED, cluster)
    first, same, other = (run_once(trace, scenario, seed=seed).requests for seed in (1, 1, 2))
    assert first.equals(same)
    assert not first.equals(other)


def with_memory(kv_tokens: int) -> Profile:
    policies = {**COMPUTED.policies, "kv_tokens": kv_tokens}
    return COMPUTED.model_copy(update={"policies": policies})


@pytest.mark.parametrize(
    ("asked", "statuses"),
    [
        (None, ["finished", "refused", "finished", "refused"]),
        (4096, ["finished"] * 4),
        (1024, ["refused"] * 4),
    ],
)
def test_each_profile_has_its_own_memory_unless_one_is_set(
    asked: int | None, statuses: list[str]
) -> None:
    large, small = with_memory(8192), with_memory(1024)
    policies = large.policy_config()
    if asked is not None:
        policies = replace(policies, kv_tokens=asked)
    trace = Trace(tuple(request(name, prompt=2000) for name in "abcd"), "made")
    run = run_once(trace, Scenario(policies, large, more_profiles=(small,)))
    assert run.requests["status"].tolist() == statuses


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"replicas": 0}, "replicas: 0 is not possible; it must be at least 1"),
        ({"decode_replicas": -2}, "decode_replicas: -2 is not possible"),
        ({"prefill_replicas": 2}, "prefill_replicas and decode_replicas go together, not 2 and 0"),
        ({"router": "randon"}, "did you mean 'random'?"),
        ({"decode_router": "absent.py:Absent"}, "absent.py: Absent: the file cannot be read"),
        ({"staleness_s": float("nan")}, "staleness_s: nan is not possible"),
        ({"link_bytes_per_s": 0.0}, "link: bytes_per_s must be above 0"),
        ({"link_latency_s": -1.0}, "link: latency_s must be finite and at least 0"),
    ],
)
def test_a_wrong_cluster_is_refused_even_where_it_would_not_matter(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ServetwinError) as caught:
        ClusterConfig(**settings)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("cluster", "more", "name"),
    [
        ({}, 0, "continuous+paged"),
        ({"router": "random"}, 0, "continuous+paged"),
        ({"replicas": 3, "router": "random"}, 0, "continuous+paged x3 random"),
        ({"replicas": 2}, 1, "continuous+paged x4 round-robin"),
        ({"prefill_replicas": 2, "decode_replicas": 3}, 1, "continuous+paged 2P3D"),
    ],
)
def test_a_scenario_has_a_short_name(cluster: dict[str, Any], more: int, name: str) -> None:
    policies = COMPUTED.policy_config()
    scenario = Scenario(policies, COMPUTED, ClusterConfig(**cluster), (COMPUTED,) * more)
    assert scenario.name == name


@pytest.mark.parametrize(
    ("profile", "cluster", "repeatable"),
    [
        (COMPUTED, {}, True),
        (COMPUTED, {"replicas": 2, "router": "least-tokens"}, True),
        (COMPUTED, {"replicas": 2, "router": "power-of-two"}, False),
        (COMPUTED, {"prefill_replicas": 1, "decode_replicas": 1, "decode_router": "random"}, False),
        (MEASURED, {}, False),
    ],
)
def test_only_what_nothing_draws_from_is_repeatable(
    profile: Profile, cluster: dict[str, Any], repeatable: bool
) -> None:
    scenario = Scenario(profile.policy_config(), profile, ClusterConfig(**cluster))
    assert scenario.is_repeatable() == repeatable
    assert scenario.is_certain() == (profile is COMPUTED)


NO_JUDGE = (
    "draft_rows: 2 needs a technique that judges the drafts; name one for a server of --model and "
    "--hardware, such as --technique speculative:drafts=2, or set 0"
)


def test_drafts_that_nothing_judges_are_an_error_of_the_scenario() -> None:
    trace = Trace((request("a", output=4),), "made")
    drafting = PolicyConfig(max_seqs=8, draft_rows=2)
    judged = build_setup("llama-2-7b", "a100-80gb", ["speculative"]).server()
    for scenario in (
        Scenario(drafting, COMPUTED),
        Scenario(drafting, judged, more_profiles=(COMPUTED,)),
    ):
        with pytest.raises(PolicyError) as caught:
            run_once(trace, scenario)
        assert str(caught.value) == NO_JUDGE
    for other in (drafting.changed(draft_rows=0), drafting.changed(batching="static")):
        run = run_once(trace, Scenario(other, COMPUTED))
        assert set(run.requests["status"]) == {"finished"}


def test_blocks_and_drafts_do_not_stand_in_for_each_other() -> None:
    trace = Trace((request("a", output=4),), "made")
    setup = build_setup("llama-2-7b", "a100-80gb", ["diffusion"])
    for prompt_token, technique in ((True, "diffusion"), (False, "blockwise:block=32")):
        server = build_setup("llama-2-7b", "a100-80gb", [technique]).server()
        policies = replace(setup.scenario().policies, prompt_token=prompt_token)
        reason = f"^prompt_token: {prompt_token} does not fit .*; it must be {not prompt_token}$"
        with pytest.raises(PolicyError, match=reason):
            run_once(trace, Scenario(policies, server))


def test_prompts_that_yield_no_token_are_not_handed_on() -> None:
    setup = build_setup("llama-2-7b", "a100-80gb", ["diffusion", "prefill-decode-split"])
    with pytest.raises(PolicyError, match="prompt_token: a prefill replica hands on"):
        run_once(Trace((request("a", output=4),), "made"), setup.scenario())


@pytest.mark.parametrize(
    "options",
    [
        ["replay", SAMPLE, *SERVER, "--batching", "unified", "--set", "draft_rows=2"],
        ["replay", "compare", "continuous", "continuous+draft_rows=2", SAMPLE, *SERVER],
    ],
)
def test_the_command_line_says_which_technique_is_missing(options: list[object]) -> None:
    done = servetwin(*options, "--max-seqs", "8")
    assert (done.code, done.err) == (2, f"servetwin: {NO_JUDGE}\n")
