"""``servetwin capacity`` with --replicas alone, --users, --vary and --price."""

import json

import pytest

from tests.support.command import refused, servetwin
from tests.support.paths import SAMPLE

SLO = ("--slo", "ttft=500ms", "--attainment", 0.9, "--rate", 12, "--replications", 2)


def test_replicas_alone_asks_how_many_and_the_answer_comes_first() -> None:
    done = servetwin("capacity", SAMPLE, *SLO, "--replicas", "--price", "0.5")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].startswith("3 replicas hold p90 TTFT below 500 ms for the 240 requests")
    assert "2 miss it: 510 ms" in " ".join(lines[:3])
    assert "1.50" in done.out
    assert max(map(len, lines)) <= 100


def test_json_has_every_candidate_its_counts_and_its_cost() -> None:
    done = servetwin(
        "capacity", SAMPLE, *SLO, "--vary", "batching=static,continuous", "--replicas", "--json",
    )  # fmt: skip
    found = json.loads(done.out)
    assert [one["label"] for one in found["candidates"]] == [
        "batching=static", "batching=continuous",
    ]  # fmt: skip
    assert found["best"] in ("batching=static", "batching=continuous")
    static, continuous = found["candidates"]
    assert continuous["count"] <= static["count"]
    assert [p["holds"] for p in continuous["points"]] == [False, True, True]
    assert continuous["cost_per_h"] is None


def test_users_think_and_have_a_number_of_their_own() -> None:
    few = servetwin("capacity", SAMPLE, *SLO, "--users", "--limit", 100)
    more = servetwin(
        "capacity", SAMPLE, *SLO, "--users", "--limit", 100, "--think-time", "exponential:mean=5"
    )
    counts = [int(done.out.split()[0]) for done in (few, more)]
    assert " users at a time are served with p90 TTFT below 500 ms by 1 x " in few.out
    assert counts[0] < counts[1]


def test_a_candidate_that_cannot_be_is_a_row_with_its_reason() -> None:
    done = servetwin(
        "capacity", SAMPLE, *SLO, "--replicas", "--model", "llama-3-70b",
        "--vary", "gpu=h100,b200",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "gpu=b200: 1 replica holds" in " ".join(done.out.split())
    assert "gpu=h100" in done.out
    assert "fit" in done.out


def test_a_rate_has_candidates_too() -> None:
    done = servetwin(
        "capacity", SAMPLE, "--slo", "ttft=500ms", "--attainment", 0.9, "--replications", 0,
        "--vary", "max_seqs=2,16",
    )  # fmt: skip
    assert done.out.startswith("max_seqs=16: ")
    assert " requests/s are served with p90 TTFT below 500 ms" in done.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--replicas", "none"], "--replicas: 'none' is no number from 1 on"),
        (["--replicas=0"], "--replicas: '0' is no number from 1 on"),
        (["--replicas", "--users"], "--users: asks for users; give --replicas N beside it"),
        (["--think-time", "2"], "--think-time: is of users"),
        (["--users", "--think-time", "long"], "long"),
        (["--most", "4"], "--most: is of replicas or users"),
        (["--replicas", "--price", "cheap"], "--price: 'cheap' is no price"),
        (["--replicas", "--price", "h100=3"], "--price: no candidate runs on 'h100'"),
        (["--replicas", "--vary", "max_seq=4"], "max_seqs"),
        (["--replicas", "--attainment", "0.999"], "cannot tell what 99.9 % of them keep"),
        (["--replicas", "--vary", "gpu=h100"], "--model"),
    ],
)
def test_bad_input_is_one_line(options: list[str], message: str) -> None:
    given = ["--slo", "ttft=500ms", "--replications", "0", *options]
    assert message in refused("capacity", SAMPLE, *given)
