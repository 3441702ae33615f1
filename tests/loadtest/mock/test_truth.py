"""The truth is written and read back."""

from pathlib import Path

import pytest

from servetwin.loadtest.mock.truth import Truth
from tests.support.mock_truth import KeptTruth, read_truth, tpot_s, ttft_s


def test_the_truth_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "truth.jsonl"
    log = KeptTruth(path)
    truth = Truth("mock-0", 1_000_000_000, 8)
    log.begin(truth)
    truth.wrote(2, 1_300_000_000, 1_310_000_000)
    truth.wrote(3, 1_400_000_000, 1_430_000_000)
    log.end(truth, "cut", 1_500_000_000)
    log.end(truth, "left", 1_600_000_000)
    log.close()
    assert read_truth(path) == log.records == [truth]
    assert (truth.outcome, truth.ended_ns) == ("cut", 1_500_000_000)
    assert ttft_s(truth) == pytest.approx(0.31)
    assert tpot_s(truth) == pytest.approx(0.12 / 3)
