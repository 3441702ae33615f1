"""What a request costs in long queues and for long prompts: rows of ``make bench``."""

import sys
from typing import Any, get_args

import pytest

from servetwin.policies.config import PrefixIndex
from tests.benchmarks.queues import HEADER, ROWS, events, line, mooncake, mooncake_of_preset
from tests.benchmarks.simulator import MOONCAKE


@pytest.mark.parametrize("name", ROWS)
def test_cost_of_a_request_by_size(
    name: str, benchmark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    make, sizes = ROWS[name]
    found = benchmark.pedantic(lambda: {size: events(make(size)) for size in sizes}, rounds=1)
    benchmark.extra_info["events_per_request"] = found
    with capsys.disabled():
        sys.stdout.write(f"\n{HEADER}\n{line(name, found)}\n")
    assert set(found) == set(sizes)


@pytest.mark.skipif(not MOONCAKE.is_file(), reason="the public trace is not here")
@pytest.mark.parametrize("index", get_args(PrefixIndex))
def test_cost_of_a_cached_conversation(
    index: PrefixIndex, benchmark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    found = benchmark.pedantic(lambda: events(mooncake(index)), rounds=1)
    with capsys.disabled():
        sys.stdout.write(f"\nMooncake, {index}: {found:.1f} events a request\n")
    assert found > 0


@pytest.mark.skipif(not MOONCAKE.is_file(), reason="the public trace is not here")
def test_cost_of_a_conversation_under_a_preset(
    benchmark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    found = benchmark.pedantic(lambda: events(mooncake_of_preset("vllm-v1")), rounds=1)
    with capsys.disabled():
        sys.stdout.write(f"\nMooncake, vllm-v1: {found:.1f} events a request\n")
    assert found > 0
