"""``servetwin plan``: ranked rows, their costs and commands, and input that cannot be planned."""

import json
import re
from math import ceil
from pathlib import Path
from typing import Any

import pytest
import yaml

from servetwin import SLO, plan, sample_trace
from servetwin.app.plan.printed_plan import plan_lines
from servetwin.app.scenario.files.scenario_file import Workload
from servetwin.app.scenario.options.simulations import PlanOptions
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.generators.arrivals import PoissonArrivals
from servetwin.workloads.generators.conversations import agentic, generate_conversations
from servetwin.workloads.readers.native import write_trace
from servetwin.workloads.transform import at_rate
from tests.support.command import servetwin
from tests.support.paths import SAMPLE

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
ASKED = (
    "plan", SAMPLE, "--model", "qwen3-14b", "--slo", "ttft=500ms,tpot=100ms", "--attainment", 0.9,
    "--limit", 60, "--rate", 40, "--replications", 0, "--processes", 1,
)  # fmt: skip


def test_the_cheapest_comes_first_with_its_command(tmp_path: Path) -> None:
    done = servetwin(*ASKED, "--gpu", "h100,l40s", "--out", tmp_path / "plan")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].startswith("qwen3-14b on ")
    assert "vllm serve Qwen/Qwen3-14B" in done.out
    assert "list prices of" in done.out
    files = sorted((tmp_path / "plan").iterdir())
    assert [path.name for path in files] == ["h100.yaml", "l40s.yaml"]
    for path in files:
        assert [part["kind"] for part in yaml.safe_load_all(path.read_text())] == [
            "Deployment", "Service",
        ]  # fmt: skip
    again = servetwin(*ASKED, "--gpu", "h100", "--gpu", "l40s", "--out", tmp_path / "plan")
    assert (again.code, again.err.count("\n")) == (2, 1), "it is known before the work begins"
    assert "(--overwrite)" in again.err
    files[0].unlink()
    files[0].mkdir()
    done = servetwin(*ASKED, "--gpu", "h100", "--out", tmp_path / "plan", "--overwrite")
    assert (done.code, "vllm serve" in done.out) == (2, True), "the plan is not lost"
    files[0].rmdir()
    files[0].write_text("")
    below_a_file = servetwin(*ASKED, "--out", files[0] / "plan")
    assert (below_a_file.code, below_a_file.err.count("\n")) == (2, 1)
    assert "cannot be made (Not a directory)" in below_a_file.err


def test_prices_decide_and_spares_cost() -> None:
    def planned(*more: object) -> list[dict[str, Any]]:
        done = servetwin(*ASKED, "--gpu", "h100,l40s", "--json", *more)
        assert done.code == 0, done.err
        return list(json.loads(done.out)["plans"])

    dear = planned("--price", "l40s=100")
    cheap = planned("--price", "l40s=0.01", "--spares", 1)
    assert [row["gpu"] for row in dear] == ["h100", "l40s"]
    assert [row["gpu"] for row in cheap] == ["l40s", "h100"]
    assert cheap[0]["servers"] == dear[1]["servers"] + 1
    assert cheap[0]["cost_per_h"] == pytest.approx(0.01 * cheap[0]["gpus"])


def test_a_device_without_a_price_comes_last_and_one_above_the_budget_with_its_reason() -> None:
    rows = plan(
        sample_trace(), "qwen3-14b", SLO(ttft_s=1.0), attainment=0.9,
        options=PlanOptions(gpu=("mi300x", "l40s"), price="l40s=50", replications=0, processes=1),
    )  # fmt: skip
    assert [(row.gpu, row.cost_per_h is None) for row in rows.rows] == [
        ("l40s", False), ("mi300x", True),
    ]  # fmt: skip
    assert list(rows.frame()["gpu"]) == ["l40s", "mi300x"]
    poor = servetwin(*ASKED, "--gpu", "h100,l40s", "--price", "h100=99", "--budget", 20)
    assert poor.code == 0, poor.err
    assert "above the budget" in poor.out


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--model", "llama-3-405b", "--gpu", "l4"), "weights do not fit"),
        (("--slo", "ttft=500ms,tpot=1ms", "--gpu", "l40s,h100"), "(nearest: "),
        (("--limit", 8), "8 requests cannot tell what 90 % of them keep: take at least 10"),
        (("--gpu", "h1000"), "did you mean"),
        (("--price", "h100=dear"), "--price: h100: 'dear' is no price"),
        (("--server", "trtllm"), "trtllm is not planned; vllm or sglang"),
        (("--attainment", "0"), "0 is no share"),
        (("--most-gpus", 1, "--rate", 400, "--gpu", "l4"), "more than 1 devices"),
    ],
)
def test_what_cannot_be_planned_is_one_line(options: tuple[object, ...], problem: str) -> None:
    asked = (*ASKED[:4], *ASKED[6:]) if "--slo" in options else ASKED
    done = servetwin(*asked, *options)
    assert (done.code, done.out) == (2, "")
    *progress, line = done.err.splitlines()
    assert all(each.startswith("plan, kinds of GPUs: ") for each in progress)
    assert problem in line


def test_a_limit_that_nothing_holds_names_the_part() -> None:
    options = PlanOptions(gpu=("h100",), processes=1)
    with pytest.raises(PolicyError, match=r"not even a request alone holds TPOT 1 ms \(nearest"):
        plan(sample_trace(), "qwen3-14b", SLO(ttft_s=0.5, tpot_s=0.001), options=options)


@pytest.mark.slow
def test_servers_apart_are_in_the_ranking_with_a_command_and_a_manifest_each() -> None:
    long = Workload(requests=200, rate_per_s=10.0, prompt_tokens=4000, output_tokens=300).trace(0)
    options = PlanOptions(gpu=("h100", "l40s"), replications=0, processes=1, most_gpus=16)
    answer = plan(long, LLAMA, SLO(ttft_s=1.0, tpot_s=0.015), attainment=0.95, options=options)
    row = answer.rows[0]
    prefill, decode = re.findall(r"\d+(?= prefill| decode)", row.layout)
    assert row.servers == int(prefill) + int(decode)
    commands = row.command.splitlines()
    assert ["kv_producer" in commands[0], "kv_consumer" in commands[1]] == [True, True]
    assert set(commands) <= {line.strip() for line in plan_lines(answer)}
    parts = list(yaml.safe_load_all(row.manifest))
    assert [part["kind"] for part in parts] == ["Deployment", "Service"] * 2
    assert [part["spec"]["replicas"] for part in parts[::2]] == [int(prefill), int(decode)]
    assert len({part["metadata"]["name"] for part in parts[::2]}) == 2


def test_the_cost_of_tokens_ends_where_the_servers_of_its_capacity_do() -> None:
    rows = plan(
        at_rate(sample_trace(), 100.0), "qwen3-14b", SLO(ttft_s=0.5), attainment=0.9,
        options=PlanOptions(gpu=("l40s",), replications=6, spares=1, processes=1),
    ).rows  # fmt: skip
    cost, capacity, servers = (
        rows[0].cost_per_million_tokens,
        rows[0].capacity_per_s,
        rows[0].servers,
    )
    assert cost is not None
    assert capacity is not None
    for end, per_s in ((cost.low, capacity.high), (cost.high, capacity.low)):
        needed = 1 + ceil((servers - 1) * 100.0 / per_s)
        assert end == pytest.approx(cost.value * needed / servers)
    assert cost.low < cost.high


def test_a_row_has_the_energy_of_a_token_where_it_is_known() -> None:
    """An A10G has no design power in the catalogue."""
    rows = plan(
        at_rate(sample_trace(), 10.0), "qwen3-8b", SLO(ttft_s=2.0, tpot_s=0.2), attainment=0.9,
        options=PlanOptions(gpu=("h100", "a10g"), replications=0, processes=1),
    ).rows  # fmt: skip
    energy = {row.gpu: row.joules_per_token for row in rows}
    known = energy["h100"]
    assert known is not None
    assert 0.05 < known.low < known.value < known.high < 50
    assert energy["a10g"] is None


def test_lanes_are_planned_without_a_rate(tmp_path: Path) -> None:
    path = tmp_path / "agents.jsonl"
    write_trace(generate_conversations(agentic(2, PoissonArrivals(1.0)), 3), path)
    done = servetwin(
        "plan", path, "--lanes", "2:duration=200", "--model", "llama-3-8b", "--gpu", "h100",
        "--slo", "ttft=60s", "--attainment", 0.9, "--replications", 0, "--processes", 1,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert " requests in 2 lanes" in " ".join(done.out.split())
    assert "/s" not in done.out.splitlines()[0]
