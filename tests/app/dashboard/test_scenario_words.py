"""The line that says what is simulated: as resolved, on every kind of server."""

import pytest

from servetwin.app.dashboard.scenario import uploads
from servetwin.app.dashboard.scenario.controls import OWN
from servetwin.app.dashboard.scenario.uploads import Upload
from servetwin.app.dashboard.scenario_words import simulated_line
from servetwin.app.dashboard.simulations import simulate
from servetwin.app.scenario.files.scenario_file import parse_scenario
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "",
            ["**llama\\-3\\-8b** on 1 × h100", "continuous batching, up to 256",
             " computed from data sheets · ", "paged KV memory of 478,984 tokens",
             "20 generated requests at 10 per second"],
        ),
        ("cluster: {replicas: 3}", ["on 3 × h100 (3 replicas)"]),
        (
            "deployment: {model: llama-3-70b, gpu: h100, techniques: ['tensor-parallel:ways=4']}\n"
            "cluster: {replicas: 2}",
            ["**llama\\-3\\-70b** on 8 × h100 (2 replicas of 4)"],
        ),
        (
            "policies: {batching: static, kv: contiguous, max_seqs: 8}",
            ["static batching, up to 8 sequences · contiguous KV memory of 436,904 tokens"],
        ),
        (
            "preset: vllm-v1\npolicies: {kv_tokens: 5000}",
            ["2,048 tokens a step", "KV memory of 5,000 tokens, prefix cache"],
        ),
        ("deployment: {profile: base-cpu}", ["**base** on 1 × AMD EPYC", " measured here · "]),
    ],
)  # fmt: skip
def test_all_is_as_resolved(text: str, words: list[str]) -> None:
    line = simulated_line(simulate(parse_scenario(f"workload: {{requests: 20}}\n{text}", "t")))
    for said in words:
        assert said.replace("\\", "") in line.replace("\\", "")
    assert OWN not in line
    assert "None" not in line


def test_requests_are_used_of_total(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Trace(tuple(Request(f"r{n}", n / 9, 20, 3) for n in range(3000)), "own.csv")
    found = {"own.csv": Upload(own, "3000")}
    monkeypatch.setattr(uploads, "uploads", lambda: found)
    of_own = "workload: {source: own.csv, rate_per_s: null"
    assert "3,000 of 3,000 requests of own.csv" in simulated_line(
        simulate(parse_scenario(f"{of_own}}}", "t"))
    ).replace("\\", "")
    assert "500 of 3,000 requests of own.csv" in simulated_line(
        simulate(parse_scenario(f"{of_own}, requests: 500}}", "t"))
    ).replace("\\", "")
