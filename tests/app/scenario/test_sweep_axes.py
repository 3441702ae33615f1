"""Axes of a grid: what they vary, what is impossible, every combination."""

import pytest

from servetwin.app.scenario.sweep_axes import Axis, combinations, parse_axis, parse_rates
from servetwin.workloads.errors import PolicyError


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
        ("queue_order=fcfs,sjf", Axis("queue_order", ("fcfs", "sjf"))),
        ("host_kv_tokens=0,64", Axis("host_kv_tokens", ("0", "64"))),
        ("queue_limit=none,4", Axis("queue_limit", ("none", "4"))),
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
        ("preset=vlm-v1", "^--vary: preset: unknown preset 'vlm-v1'; did you mean 'vllm-v1'"),
        ("technique=nope,fp8", "^--vary: technique: unknown technique 'nope'; known are awq, "),
        ("technique=fp8,fp9", "unknown technique 'fp9'; did you mean 'fp8'"),
        ("technique=fp8:bit=4", "technique fp8: unknown parameter 'bit'"),
        ("without=page-attention", "did you mean 'paged-attention'"),
        ("model=llama-2-7b,llama-2-7", "^--vary: no model 'llama-2-7'; did you mean 'llama-2-7b'"),
        ("hardware=h10,h100", "^--vary: no device 'h10'; did you mean 'h100'"),
        ("profile=base-cpu,bas-cpu", "^--vary: no profile 'bas-cpu'; did you mean 'base-cpu'"),
        ("profile=mine.py:Mine", "^--vary: profile: mine.py: Mine: the file cannot be read"),
        ("batching=static,statik", "unknown scheduler 'statik'; did you mean 'static'"),
        ("kv=page", "unknown KV memory 'page'; did you mean 'paged'"),
        ("eviction=lru,nope", "unknown eviction order 'nope'; known are fifo, lfu, lru"),
        ("router=randon", "unknown router 'randon'; did you mean 'random'"),
        ("decode_router=none", "unknown router 'none'"),
        ("queue_order=fcfs,sfj", "queue_order: 'sfj' is not possible; did you mean 'sjf'"),
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
