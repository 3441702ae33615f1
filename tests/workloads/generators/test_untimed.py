"""Times and output lengths for files that have none."""

from pathlib import Path

import numpy as np
import pytest

from servetwin.workloads.generators.generate import with_arrivals, with_output_lengths
from servetwin.workloads.generators.lengths import FixedTokens
from servetwin.workloads.readers.prompt_records import NO_TIMES
from servetwin.workloads.reading import read_trace
from servetwin.workloads.trace import Trace
from servetwin.workloads.transform import at_rate
from tests.support.prompt_files import ANSWERS, lines, sharegpt, written


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    rows = [{"prompt": f"question {number}"} for number in range(2000)]
    return read_trace(written(tmp_path / "many.jsonl", lines(*rows)))


def test_arrivals_are_a_poisson_process_by_seed(trace: Trace) -> None:
    timed = with_arrivals(trace, 4.0, 7)
    gaps_s = np.diff([request.arrival_s for request in timed])
    assert abs(gaps_s.mean() - 0.25) < 4 * 0.25 / np.sqrt(len(gaps_s))
    assert abs(gaps_s.std() / gaps_s.mean() - 1) < 0.1
    assert [r.prompt for r in timed] == [r.prompt for r in trace]
    assert timed == with_arrivals(trace, 4.0, 7)
    assert timed != with_arrivals(trace, 4.0, 8)
    assert timed.timed
    assert NO_TIMES not in timed.notes
    assert timed.notes[-1] == "no arrival times in the file: a Poisson process of 4/s (seed 7)"


def test_a_rate_gives_times_once_and_scales_them_then(trace: Trace) -> None:
    timed = at_rate(trace, 4.0, 7)
    assert timed == with_arrivals(trace, 4.0, 7)
    assert at_rate(timed, 2.0).rate_per_s == pytest.approx(2.0)


def test_other_output_lengths_replace_answers(tmp_path: Path) -> None:
    trace = read_trace(sharegpt(tmp_path))
    assert [r.answer for r in trace] == ANSWERS
    other = with_output_lengths(trace, FixedTokens(9), "9", 0)
    assert [(r.output_tokens, r.answer) for r in other] == [(9, None)] * 3
    assert other.notes[-1] == "outputs 9, seed 0"
