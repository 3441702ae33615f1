"""Axes of a grid: what they vary, what is impossible, every combination."""

import pytest

from servetwin.app.scenario.sweep_axes import Axis, combinations, parse_axis, parse_rates
from servetwin.workloads.errors import PolicyError
from tests.support.wrong_words import wrong_words


@pytest.mark.parametrize(
    "text",
    [
        "max_seqs=16,64", "preset=vllm-v1,sglang", "gpu=h100,a100-80gb", "without=none,kv-cache",
        "technique=none,weight-int4", "prefix_cache=true,off", "queue_order=fcfs,sjf",
        "queue_limit=none,4", "layout=tp=8,dp=8+ep=8", "server=vllm@0.19", "times=sheet,kernels",
    ],
)  # fmt: skip
def test_an_axis_is_a_setting_and_its_values(text: str) -> None:
    key, _, values = text.partition("=")
    assert parse_axis(text) == Axis(key, tuple(values.split(",")))


@pytest.mark.parametrize(("text", "message"), wrong_words("axes"))
def test_impossible_axes_say_what_would_be_right(text: str, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        parse_axis(text)


def test_rates_and_combinations() -> None:
    assert parse_rates("2, 4,2") == (2.0, 4.0)
    for text in ("2,x", "0", "-1", "inf"):
        with pytest.raises(PolicyError, match="--rates"):
            parse_rates(text)
    axes = [parse_axis("max_seqs=4,8"), parse_axis("batching=static,chunked")]
    assert len(list(combinations(axes))) == 4
    assert list(combinations([])) == [{}]
    with pytest.raises(PolicyError, match="varied twice"):
        list(combinations([axes[0], axes[0]]))
