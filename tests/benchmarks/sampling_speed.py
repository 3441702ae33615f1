"""Sampling of a step, as it is and as it was: ``python -m tests.benchmarks.sampling_speed``.

As it was: a host generator for each row, and a running sum in float64 over the vocabulary (it knew
no filter, so filters stand beside drawing by temperature). Both run one after the other in every
round; ratios are of medians.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median

import torch
from torch import Tensor

from servetwin.engine.sampling.sampler import sample
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.sampling.token_state import SampledRow, SeenTokens

_DRAWN = SamplingParams(1, temperature=0.8, seed=1)
KINDS = {
    "greedy": SamplingParams(1),
    "temperature": _DRAWN,
    "top_k": replace(_DRAWN, top_k=50),
    "top_p": replace(_DRAWN, top_p=0.9),
    "min_p": replace(_DRAWN, min_p=0.05),
    "penalties": replace(_DRAWN, presence_penalty=0.5, repetition_penalty=1.1),
}


def as_it_was(
    logits: Tensor, temperatures: Sequence[float], draws: Sequence[torch.Generator]
) -> Tensor:
    """Take the likeliest tokens, or draw by inverse transform."""
    tokens = logits.argmax(dim=-1)
    if not temperatures[0]:
        return tokens
    column = torch.tensor(temperatures, dtype=torch.float64)[:, None]
    weights = ((logits - logits.amax(dim=-1, keepdim=True)) / column).exp()
    cumulative = weights.cumsum(dim=-1, dtype=torch.float64)
    shares = [float(torch.rand((), dtype=torch.float64, generator=draw)) for draw in draws]
    uniforms = torch.tensor(shares, dtype=torch.float64)[:, None]
    return (cumulative[:, :-1] <= uniforms * cumulative[:, -1:]).sum(dim=-1)


def rows_of(params: SamplingParams, rows: int, varied: bool) -> list[SampledRow]:
    """Rows with equal parameters, or each with a temperature of its own."""
    seen = SeenTokens(list(range(200)), 100) if params.has_penalties else None
    each = [
        replace(params, temperature=params.temperature + row / 100)
        if varied and params.temperature
        else params
        for row in range(rows)
    ]
    return [SampledRow(one, 5, row, seen) for row, one in enumerate(each)]


def seconds(run: Callable[[], object]) -> float:
    """Return how long a call takes."""
    began_s = time.perf_counter()
    run()
    return time.perf_counter() - began_s


def compare(
    params: SamplingParams, rows: int, vocabulary: int, rounds: int
) -> tuple[float, float, float]:
    """Return the medians: as it was, as it is, and with as many parameters as rows."""
    logits = torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(1)) * 2
    equal, varied = rows_of(params, rows, False), rows_of(params, rows, True)
    draws = [torch.Generator().manual_seed(row) for row in range(rows)]
    temperatures = [params.temperature] * rows
    calls: list[Callable[[], object]] = [
        lambda: as_it_was(logits, temperatures, draws),
        lambda: sample(logits.clone() if params.has_penalties else logits, equal),
        lambda: sample(logits.clone() if params.has_penalties else logits, varied),
    ]
    times = [[seconds(call) for call in calls] for _ in range(rounds + 2)][2:]
    before, now, mixed = (median(column) for column in zip(*times, strict=True))
    return before, now, mixed


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("rows  kind           was ms   is ms  is / was  varied / equal parameters")  # noqa: T201
    for rows in (1, 8, 32):
        for kind, params in KINDS.items():
            before, now, mixed = compare(params, rows, options.vocabulary, options.rounds)
            print(  # noqa: T201
                f"{rows:4d}  {kind:12s} {before * 1e3:8.3f} {now * 1e3:7.3f}"
                f"  {now / before:8.2f}  {mixed / now:8.2f}"
            )


if __name__ == "__main__":
    main()
