"""How often the drafts of a server were accepted, by their place in a pass."""

from pathlib import Path

import pytest

from servetwin.sim.catalogue.servers.acceptance import read_acceptance
from servetwin.sim.step_times.acceptance import Measured
from servetwin.sim.techniques.registry import find_technique
from servetwin.workloads.errors import PolicyError
from tests.support.acceptance import mean_tokens_per_pass
from tests.support.serving_techniques import REAL

METRICS = """\
# TYPE vllm:spec_decode_num_drafts counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 60.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 40.0
vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.7e+09
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 120.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 75.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 50.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 25.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="0"} 30.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="1"} 15.0
"""
LINE = (
    "INFO 11-27 [metrics.py:120] SpecDecoding metrics: Mean acceptance length: 2.00, Accepted "
    "throughput: 1.0 tokens/s, Drafted throughput: 2.0 tokens/s, Accepted: 9 tokens, Drafted: {} "
    "tokens, Per-position acceptance rate: {}, Avg Draft acceptance rate: 50.0%\n"
)


@pytest.mark.parametrize(
    ("text", "shares"),
    [
        (METRICS, (0.8, 0.4)),
        (LINE.format(20, "0.900, 0.500") + LINE.format(60, "0.500, 0.100"), (0.6, 0.2)),
    ],
)
def test_a_server_tells_the_acceptance_of_each_place(
    text: str, shares: tuple[float, ...], tmp_path: Path
) -> None:
    path = tmp_path / "server.txt"
    path.write_text(text)
    assert read_acceptance(path) == pytest.approx(shares)
    technique = find_technique(f"speculative:any_vocabulary=true,drafts=2,reach={path}")
    assert technique.model_dump()["reach"] == pytest.approx(shares)


@pytest.mark.parametrize("text", ["", "hello\n", METRICS.replace("_drafts", "_draft")])
def test_a_file_without_counts_says_what_would_be_right(text: str, tmp_path: Path) -> None:
    path = tmp_path / "server.txt"
    path.write_text(text)
    with pytest.raises(PolicyError, match=r"no passes are counted; it must be vLLM's /metrics"):
        read_acceptance(path)


@pytest.mark.parametrize(
    ("drafts", "reach"),
    [(1, (0.8,)), (2, (0.8, 0.4)), (4, (0.8, 0.4, 0.2, 0.1))],
)
def test_further_drafts_fall_as_the_last_two_did(drafts: int, reach: tuple[float, ...]) -> None:
    law = Measured.of((0.8, 0.4), drafts)
    assert law.reach == pytest.approx(reach)
    assert law.rows == 1 + drafts
    assert mean_tokens_per_pass(law) == pytest.approx(1 + sum(reach))
    assert Measured.of((0.5,), 2).reach == (0.5, 0.25)
    assert Measured.of((0.0, 0.0), 3).reach == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("reach=0.5x0.6", "must fall"),
        ("reach=0.5,least_confidence=0.2", "leave out what ends the drafting"),
        ("reach=1.5", "less than or equal to 1"),
        ("reach=nowhere.log", "valid number"),
    ],
)
def test_shares_that_cannot_be_are_refused(given: str, reason: str) -> None:
    with pytest.raises(PolicyError, match=reason):
        find_technique(f"self-speculation:{given}").apply(REAL)
