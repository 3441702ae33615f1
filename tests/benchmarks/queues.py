"""What a request costs in long queues, of many tenants, for long prompts, in bare SimPy events.

``python -m tests.benchmarks.queues`` prints a row for each; growth is the most expensive size in
costs of the cheapest. Wanted: at most 1.5.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, get_args

import typer

from servetwin.policies.config import PrefixIndex
from servetwin.policies.presets import find_preset
from servetwin.workloads.reading import read_trace
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.benchmarks.simulator import MOONCAKE, Case, Costs

PAIRS = 3
REQUESTS = 20_000
PRESET_REQUESTS = 3_000
LENGTHS = (1_000, 10_000, 100_000)
TENANTS = (10, 1_000, 10_000)
PROMPT_TOKENS = (1_000, 10_000, 100_000)
KEY_TOKENS = 128
PREEMPTING = {"kv_tokens": 4_096, "max_seqs": 32, "max_model_len": 512}


class Growth(NamedTuple):
    """A load by its size, and the sizes that are measured."""

    make: Callable[[int], Case]
    sizes: tuple[int, ...]


def waiting(requests: int, **policies: Any) -> Case:
    """Return requests that come at once, more than the memory holds, so decodes are preempted.

    Every fourth prompt has two answers: one that is preempted belongs into the middle of the queue.
    """
    asked = [
        Request(f"r{i}", 0.0, 20 + 37 * i % 90, 40 + 13 * i % 80, samples=1 + (i % 4 == 0))
        for i in range(requests)
    ]
    return _case(asked, **PREEMPTING, **policies)


def of_tenants(tenants: int) -> Case:
    """Return requests that come at once, of so many tenants in turn."""
    case = waiting(max(REQUESTS, 2 * tenants), queue_order="fair")
    requests = [replace(r, tenant=f"t{i % tenants}") for i, r in enumerate(case.trace)]
    return replace(case, trace=Trace(tuple(requests), "tenants"))


def beyond_the_limit(limit: int, **policies: Any) -> Case:
    """Return requests that fill the queue at once; then more come than are served."""
    at_once = [Request(f"w{i}", 0.0, 50, 1 + i % 3) for i in range(limit)]
    later = [Request(f"r{i}", 1e-3 * i, 50, 1 + i % 3) for i in range(limit)]
    return _case([*at_once, *later], queue_limit=limit, max_seqs=32, **policies)


def with_deadlines(limit: int) -> Case:
    """Return the same requests, nearly each with a deadline of its own, in no order.

    So they leave the queue in another order than they came: a sequence is seldom in a cache.
    """
    case = beyond_the_limit(limit, queue_order="edf")
    requests = [
        replace(r, ttft_slo_s=1.0 + 1e-3 * (7_919 * i % (2 * limit)))
        for i, r in enumerate(case.trace)
    ]
    return replace(case, trace=Trace(tuple(requests), "deadlines"))


def cached(requests: int) -> Case:
    """Return requests that come at once; prompts of 50 families begin alike."""
    asked = [
        Request(f"r{i}", 0.0, 640, 2 + i % 5, (i % 50, 50 + i % 500, *_own(i, 3)), KEY_TOKENS)
        for i in range(requests)
    ]
    policies = {"prefix_cache": True, "queue_order": "longest-prefix"}
    return _case(asked, **policies, kv_tokens=65_536, max_model_len=1_024, token_budget=8_192)


def of_prompts(tokens: int, index: PrefixIndex, requests: int = 1_000) -> Case:
    """Return half-shared prompts, each computed in one step; the memory holds 40 of them."""
    keys = tokens // KEY_TOKENS
    asked = [
        Request(
            f"r{i}",
            10.0 * i,
            tokens,
            10,
            (*_own(-1 - i % 30, keys // 2), *_own(i, keys - keys // 2)),
            KEY_TOKENS,
        )
        for i in range(requests)
    ]
    policies = {"prefix_cache": True, "prefix_index": index, "token_budget": 1 << 20}
    return _case(asked, **policies, kv_tokens=40 * tokens)


def mooncake(index: PrefixIndex) -> Case:
    """Return the Mooncake conversation trace as it came, with a prefix cache."""
    return Case.of(read_trace(MOONCAKE), prefix_cache=True, prefix_index=index)


def mooncake_of_preset(preset: str) -> Case:
    """The first requests of the same trace under the policies of a preset."""
    requests = list(read_trace(MOONCAKE))[:PRESET_REQUESTS]
    return Case.of(Trace(tuple(requests), "mooncake"), **find_preset(preset).policies)


def _own(number: int, keys: int) -> range:
    """Return chained keys that belong to one number."""
    return range(1_000_000 * number, 1_000_000 * number + keys)


def _case(requests: list[Request], **policies: Any) -> Case:
    return Case.of(Trace(tuple(requests), "queues"), **policies)


ROWS = {
    "FCFS, waiting": Growth(waiting, LENGTHS),
    "shortest first, waiting": Growth(lambda n: waiting(n, queue_order="sjf"), LENGTHS),
    "longest prefix, waiting": Growth(cached, LENGTHS),
    "fair share, tenants": Growth(of_tenants, TENANTS),
    "queue_limit, FCFS": Growth(beyond_the_limit, LENGTHS),
    "queue_limit, shortest first": Growth(
        lambda n: beyond_the_limit(n, queue_order="sjf"), LENGTHS
    ),
    "queue_limit, deadlines": Growth(with_deadlines, LENGTHS),
    "prompts, radix": Growth(lambda n: of_prompts(n, "radix"), PROMPT_TOKENS),
    "prompts, blocks": Growth(lambda n: of_prompts(n, "blocks"), PROMPT_TOKENS),
}
"""What grows, by name."""


def events(case: Case, pairs: int = PAIRS) -> float:
    """Return the bare events that a request costs."""
    costs = Costs(case)
    for _ in range(pairs):
        costs.time_events()
        costs.simulate()
    return costs.events_per_request


def line(name: str, found: dict[int, float]) -> str:
    """Return one row: events a request by size, and the growth."""
    figures = "".join(f"{size:>10,}{found[size]:>8.1f}" for size in sorted(found))
    growth = max(found.values()) / min(found.values())
    return f"{name:<28}{figures}{growth:>10.2f}"


HEADER = f"{'':<28}" + f"{'size':>10}{'events':>8}" * 3 + f"{'growth':>10}"


def main(pairs: int = PAIRS) -> None:
    """Print all rows, and the Mooncake trace with each index and under a preset."""
    typer.echo(HEADER)
    for name, (make, sizes) in ROWS.items():
        typer.echo(line(name, {size: events(make(size), pairs) for size in sizes}))
    if MOONCAKE.is_file():
        for index in get_args(PrefixIndex):
            typer.echo(f"Mooncake, {index}: {events(mooncake(index), pairs):.1f} events a request")
        cost = events(mooncake_of_preset("vllm-v1"), pairs)
        typer.echo(f"Mooncake, vllm-v1: {cost:.1f} events a request")


if __name__ == "__main__":
    typer.run(main)
