"""What share of the device's measured rates do the steps of the engine reach?

``python -m tests.benchmarks.device_shares --model llama-8b`` measures how fast the device copies
and multiplies, then decode steps at batch 1 and 32 against the copy, and a prefill of 2,048 tokens
against the matrix product. After each figure it prints a line of words, and a line of JSON with all
figures so far. Weights are drawn at random; on a CPU, ``--model tiny`` tries the script itself.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median

import torch

from servetwin.engine.core.runner import Runner
from servetwin.engine.kernels.graphs import cuda_graphs
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.model_config import ModelConfig, model_preset
from servetwin.engine.models.tensor_layout import parameters
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.sampling.token_state import token_state
from servetwin.policies.batch import Batch, ScheduledSequence
from servetwin.policies.sequence import Sequence as Served

BLOCK_TOKENS, CONTEXT_TOKENS, PREFILL_TOKENS = 16, 128, 2048
BATCHES = (1, 32)
TARGETS = {
    ("llama-8b", "decode 1"): 0.75,
    ("llama-1b", "decode 1"): 0.45,
    ("llama-8b", "decode 32"): 0.60,
    ("llama-1b", "decode 32"): 0.60,
    ("llama-0.6b", "decode 1"): 0.35,
    ("llama-8b", "prefill 2048"): 0.60,
    ("llama-1b", "prefill 2048"): 0.60,
}
"""What is hoped for, by shape and step."""


@dataclass(frozen=True)
class Rates:
    """What the device does at best, measured: bytes read and written by a copy, and products."""

    bytes_per_s: float
    flops_per_s: float


@dataclass(frozen=True)
class Figure:
    """The time of one step, and its share of the rate that bounds it."""

    model: str
    step: str
    seconds: float
    device_seconds: float
    """Of the same step among others in a row, so that the host's work hides behind the device's."""
    share: float
    target: float | None


def timed(run: Callable[[], object], repeats: int, wait: Callable[[], None]) -> float:
    """Return the median time of one call that is waited for."""
    times_s = []
    for _ in range(repeats):
        wait()
        began_s = time.perf_counter()
        run()
        wait()
        times_s.append(time.perf_counter() - began_s)
    return median(times_s)


def in_a_row(run: Callable[[], object], calls: int, wait: Callable[[], None]) -> float:
    """Return the time of one of several calls of which only the last is waited for."""
    wait()
    began_s = time.perf_counter()
    for _ in range(calls):
        run()
    wait()
    return (time.perf_counter() - began_s) / calls


def measure_rates(device: torch.device, dtype: torch.dtype, wait: Callable[[], None]) -> Rates:
    """Measure a copy that no cache holds, and a square product of random numbers."""
    on_gpu = device.type == "cuda"
    source = torch.randn(2**28 if on_gpu else 2**23, device=device)
    target = torch.empty_like(source)
    target.copy_(source)
    copy_s = timed(lambda: target.copy_(source), 10, wait)
    side = 8192 if on_gpu else 512
    left, right = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    product = left @ right
    product_s = timed(lambda: torch.mm(left, right, out=product), 10, wait)
    return Rates(2 * source.nbytes / copy_s, 2 * side**3 / product_s)


def read_bytes(config: ModelConfig, rows: int, context: int, dtype_bytes: int) -> int:
    """Return what a decode step has to read: every weight once, and the keys and values."""
    embedding = 0 if config.tie_embeddings else config.vocab_size * config.hidden_size
    weights = (parameters(config) - embedding) * dtype_bytes
    return weights + rows * context * config.kv_bytes_per_token(dtype_bytes)


def prefill_flops(config: ModelConfig, tokens: int) -> int:
    """Return the multiplications and additions of a prompt whose last token samples."""
    embeddings = config.vocab_size * config.hidden_size * (1 if config.tie_embeddings else 2)
    products = 2 * tokens * (parameters(config) - embeddings)
    head = 2 * config.vocab_size * config.hidden_size
    pairs = tokens * (tokens + 1) // 2
    return products + head + 4 * pairs * config.layers * config.heads * config.head_dim


class Steps:
    """Steps of a runner with random weights, at contexts of its own choosing."""

    def __init__(
        self, config: ModelConfig, computation: Computation, batches: Sequence[int]
    ) -> None:
        rows, self.prompt_tokens = max(batches), min(PREFILL_TOKENS, config.max_model_len)
        self.config = config
        held = -(-(CONTEXT_TOKENS + 1) // BLOCK_TOKENS)
        kv_tokens = max(rows * held * BLOCK_TOKENS, self.prompt_tokens + BLOCK_TOKENS)
        self.runner = Runner(
            config, computation, layout="paged", kv_tokens=kv_tokens, block_tokens=BLOCK_TOKENS
        )
        self.device = self.runner.store.keys.device
        graphs = cuda_graphs(computation, config, self.device)
        if graphs is not None:
            self.runner.capture_decodes(graphs, rows, CONTEXT_TOKENS)
        params = SamplingParams(max_tokens=8)
        length = max(CONTEXT_TOKENS, self.prompt_tokens)
        tokens = torch.randint(config.vocab_size, (length + 1,)).tolist()
        self.states = {str(row): token_state(list(tokens), params) for row in range(rows)}
        self.seqs = []
        for row in range(rows):
            seq = Served(str(row), 0.0, CONTEXT_TOKENS, max_tokens=8)
            seq.blocks = list(range(row * held, (row + 1) * held))
            self.seqs.append(seq)

    def wait(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def decode(self, rows: int) -> Batch:
        """Return a step of so many decodes."""
        start = CONTEXT_TOKENS - 1
        return Batch(
            [ScheduledSequence(seq, start, 1, yields_token=True) for seq in self.seqs[:rows]]
        )

    def prefill(self) -> Batch:
        """Return a step of one whole prompt."""
        seq = Served("0", 0.0, self.prompt_tokens, max_tokens=8)
        seq.blocks = list(range(-(-self.prompt_tokens // BLOCK_TOKENS)))
        return Batch([ScheduledSequence(seq, 0, self.prompt_tokens, yields_token=True)])

    def seconds(self, batch: Batch) -> tuple[float, float]:
        """Return the time of a whole step with its tokens, and of its kernels in a row."""
        repeats = 30 if self.device.type == "cuda" else 3
        for _ in range(3):
            self.runner.execute(batch, self.states)
        whole_s = timed(lambda: self.runner.execute(batch, self.states), repeats, self.wait)
        row_s = in_a_row(lambda: self.runner.logits(batch, self.states), repeats, self.wait)
        return whole_s, row_s


def figures(steps: Steps, rates: Rates, batches: Sequence[int]) -> Iterator[Figure]:
    """Measure the decode steps, then the prefill."""
    config, dtype_bytes = steps.config, steps.runner.store.keys.itemsize
    work = [
        (f"decode {rows}", steps.decode(rows),
         read_bytes(config, rows, CONTEXT_TOKENS, dtype_bytes) / rates.bytes_per_s)
        for rows in batches
    ]  # fmt: skip
    tokens = steps.prompt_tokens
    bound_s = prefill_flops(config, tokens) / rates.flops_per_s
    for step, batch, least_s in [*work, (f"prefill {tokens}", steps.prefill(), bound_s)]:
        whole_s, row_s = steps.seconds(batch)
        target = TARGETS.get((config.name, step))
        yield Figure(config.name, step, whole_s, row_s, least_s / whole_s, target)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure one shape and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="llama-8b")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--batches", type=int, nargs="+", default=list(BATCHES))
    given = parser.parse_args(arguments)
    computation = Computation(given.device, given.dtype)
    steps = Steps(model_preset(given.model), computation, given.batches)
    dtype = steps.runner.store.keys.dtype
    rates = measure_rates(steps.device, dtype, steps.wait)
    say(f"copy {rates.bytes_per_s / 1e9:.0f} GB/s, product {rates.flops_per_s / 1e12:.2f} TFLOP/s")
    found: list[Figure] = []
    for one in figures(steps, rates, given.batches):
        goal = "" if one.target is None else f" (target {100 * one.target:.0f} %)"
        say(
            f"{one.model} {one.step}: {1e3 * one.seconds:.3f} ms, in a row "
            f"{1e3 * one.device_seconds:.3f} ms, {100 * one.share:.1f} %{goal}"
        )
        found.append(one)
        record = {"engine": steps.runner.describe(), "rates": asdict(rates)}
        say(json.dumps(record | {"figures": [asdict(one) for one in found]}))


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
