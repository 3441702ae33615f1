"""Axes of a grid: what they vary, what is impossible, every combination."""

import pytest

from servetwin.app.scenario.sweep_axes import Axis, combinations, parse_axis, parse_rates
from servetwin.workloads.errors import PolicyError


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
        ("gpu=h10,h100", "^--vary: no device 'h10'; did you mean 'h100'"),
        ("layout=tp=2+ep=3", "^--vary: --layout: ep=3 does not divide"),
        ("link=dgx-h10", "^--vary: .*did you mean 'dgx-h100'"),
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
