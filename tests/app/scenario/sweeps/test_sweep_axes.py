"""Axes of a grid: what they vary, what is impossible, every combination."""

import pytest

from app.scenario.sweeps.sweep_axes import Axis, combinations, parse_axis, parse_rates
from workloads.errors import PolicyError


@pytest.mark.parametrize(
    ("text", "axis"),
    [
        ("max_seqs=16,64", Axis("max_seqs", ("16", "64"))),
        ("preset=vllm-v1, sglang", Axis("preset", ("vllm-v1", "sglang"))),
        ("hardware=h100,a100-80gb", Axis("hardware", ("h100", "a100-80gb"))),
        ("technique=none,weight-int4", Axis("technique", ("none", "weight-int4"))),
        ("without=none,kv-cache", Axis("without", ("none", "kv-cache"))),
        ("prefix_cache=true,off", Axis("prefix_cache", ("true", "off"))),
        ("replicas=1,2", Axis("replicas", ("1", "2"))),
    ],
)
def test_an_axis_is_a_setting_and_its_values(text: str, axis: Axis) -> None:
    assert parse_axis(text) == axis


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_seqs", "not KEY=VALUE"),
        ("max_seqs=4,,8", "not KEY=VALUE"),
        ("max_seq=4", "did you mean 'max_seqs'"),
        ("max_seqs=4,x", "'x' is not a whole number"),
        ("max_seqs=4,4", "names a value twice"),
        ("preset=vlm-v1", "vllm-v1"),
    ],
)
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
