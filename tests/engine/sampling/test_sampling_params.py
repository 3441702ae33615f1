"""Sampling parameters."""

import re

import pytest

from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.workloads.errors import EngineError


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_tokens": 0}, "max_tokens must be at least 1 (got 0)"),
        (
            {"max_tokens": 4, "min_tokens": 5},
            "min_tokens must lie in 0 .. max_tokens = 4 (got 5)",
        ),
        *(
            (
                {"max_tokens": 4, "temperature": value},
                f"temperature must be 0 (greedy) or at least 1e-05 (got {shown})",
            )
            for value, shown in [(-0.1, "-0.1"), (float("nan"), "nan"), (1e-310, "1e-310")]
        ),
        ({"max_tokens": 4, "top_p": 0.0}, "top_p must be above 0 and at most 1 (got 0)"),
        ({"max_tokens": 4, "top_p": float("nan")}, "top_p must be above 0 and at most 1 (got nan)"),
        ({"max_tokens": 4, "top_k": -1}, "top_k must be at least 0 (got -1)"),
        ({"max_tokens": 4, "min_p": 1.5}, "min_p must lie in 0 .. 1 (got 1.5)"),
        ({"max_tokens": 4, "presence_penalty": 3}, "presence_penalty must lie in -2 .. 2 (got 3)"),
        (
            {"max_tokens": 4, "frequency_penalty": -2.5},
            "frequency_penalty must lie in -2 .. 2 (got -2.5)",
        ),
        (
            {"max_tokens": 4, "repetition_penalty": 0.0},
            "repetition_penalty must be above 0 and at most 2 (got 0)",
        ),
    ],
)
def test_impossible_parameters_are_refused(fields: dict[str, float], message: str) -> None:
    with pytest.raises(EngineError, match=f"^{re.escape(message)}$"):
        SamplingParams(**fields)  # type: ignore[arg-type]
