"""Decode steps by number format beside float32: ``python -m tests.benchmarks.formats``.

One model, random weights, one thread, sequences of the same length. Every round runs one step of
each format at each batch, and a plain read of memory, one after the other. The fastest quarter of
the rounds counts: what else the machine does comes and goes. The share is that of the bytes of
weights, keys and values in the read rate of memory.
"""

import argparse
import sys
import time
from collections import defaultdict
from dataclasses import replace
from itertools import product
from statistics import quantiles

import torch

from servetwin.engine.core.runner import Runner
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.model_config import model_preset
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.sampling.token_state import TokenState
from servetwin.policies.batch import Batch, ScheduledSequence
from servetwin.policies.sequence import Sequence
from tests.benchmarks.engine_speed import read_bytes_per_s

BATCHES = (1, 8, 32)
BLOCK_TOKENS = 16
PLAIN = Computation(device="cpu")
COMPUTATIONS = {
    "float32": PLAIN,
    "bfloat16": replace(PLAIN, dtype="bfloat16"),
    "weights int8": replace(PLAIN, weight_format="int8"),
    "weights int4": replace(PLAIN, weight_format="int4"),
    "w8a8": replace(PLAIN, weight_format="w8a8"),
    "kv int8": replace(PLAIN, kv_format="int8"),
    "w8a8, kv int8": replace(PLAIN, weight_format="w8a8", kv_format="int8"),
}


class Steps:
    """Decode steps of one format, each over as many tokens of context."""

    def __init__(self, model: str, computation: Computation, context: int) -> None:
        blocks = -(-(context + 1) // BLOCK_TOKENS)
        self._runner = Runner(
            model_preset(model), computation, layout="paged",
            kv_tokens=max(BATCHES) * blocks * BLOCK_TOKENS, block_tokens=BLOCK_TOKENS,
        )  # fmt: skip
        self._context = context
        ids = torch.randint(300, 400, (context + 1,)).tolist()
        self._seqs = [Sequence(str(index), 0.0, context, 2) for index in range(max(BATCHES))]
        self._states = {
            seq.request_id: TokenState(ids, SamplingParams(2, ignore_eos=True))
            for seq in self._seqs
        }
        for index, seq in enumerate(self._seqs):
            seq.blocks = list(range(index * blocks, (index + 1) * blocks))
            seq.base_generated_tokens = 1
            self._runner.logits(Batch([ScheduledSequence(seq, 0, context, True)]), self._states)

    def seconds(self, batch: int) -> float:
        """Return how long one step of so many decodes takes."""
        seqs = self._seqs[:batch]
        step = Batch([ScheduledSequence(seq, self._context, 1, True) for seq in seqs])
        began_s = time.perf_counter()
        self._runner.execute(step, self._states)
        return time.perf_counter() - began_s

    def bytes_read(self, batch: int) -> float:
        """Return the bytes of weights, keys and values that a step reads."""
        facts = self._runner.describe()
        kv_bytes, kv_tokens = facts["kv_bytes"], facts["kv_tokens"]
        weight_bytes = facts["weight_bytes"]
        assert isinstance(kv_bytes, int)
        assert isinstance(kv_tokens, int)
        assert isinstance(weight_bytes, int)
        return weight_bytes + batch * self._context * kv_bytes / kv_tokens


def measure(model: str, context: int, rounds: int) -> None:
    """Run the rounds and print the times and their ratios."""
    torch.set_num_threads(1)
    formats = {name: Steps(model, how, context) for name, how in COMPUTATIONS.items()}
    found, read, rates = defaultdict[tuple[str, int], list[float]](list), read_bytes_per_s(), []
    for number in range(rounds + 2):
        rates.append(read())
        for batch, (name, steps) in product(BATCHES, formats.items()):
            seconds = steps.seconds(batch)
            if number > 1:
                found[name, batch].append(seconds)
    rate = quantiles(rates, n=4)[2]
    fastest = {key: quantiles(steps, n=4)[0] for key, steps in found.items()}
    lines = [
        f"{model}, context {context}, one thread; memory is read at {rate / 1e9:.1f} GB/s",
        "", "| sequences | format | ms a step | times as fast as float32 | share of read rate |",
        "|---|---|---|---|---|",
    ]  # fmt: skip
    for batch, (name, steps) in product(BATCHES, formats.items()):
        step_s = fastest[name, batch]
        ratio = fastest["float32", batch] / step_s
        share = steps.bytes_read(batch) / step_s / rate
        lines.append(f"| {batch} | {name} | {1e3 * step_s:.1f} | {ratio:.2f} | {share:.0%} |")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="large")
    parser.add_argument("--context", type=int, default=144)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    measure(given.model, given.context, given.rounds)
