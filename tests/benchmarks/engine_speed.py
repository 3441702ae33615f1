"""The engine's decode step beside its peers: ``python -m tests.benchmarks.engine_speed``.

One model shape, random weights in float32, one thread. Every round runs our engine (its core with
scheduler and sampling, no HTTP; once more with weights in each of ``FORMATS``), ``generate`` of
transformers, llama.cpp where ``LLAMA_CPP_PYTHON`` names an interpreter that has it, and a plain
read of memory, one after the other. Milliseconds are the shortest of the rounds, ratios the median
over the rounds of those within a round: a machine that is shared changes its speed from minute to
minute. A step is (time of all tokens - time of the first) / (tokens - 1).
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from statistics import median
from typing import Any
from unittest.mock import patch

import torch

from servetwin.engine.core.build import build_core
from servetwin.engine.core.runner import Runner
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.model import Decoder
from servetwin.engine.models.model_config import ModelConfig, model_preset
from servetwin.engine.models.tensor_layout import parameters
from servetwin.engine.sampling.distribution import argmax
from servetwin.engine.sampling.sampler import new_tokens
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.serve_options import ServeOptions
from servetwin.policies.config import PolicyConfig
from servetwin.workloads.program.child_process import python_environment

PROMPT_TOKENS, NEW_TOKENS = 128, 33
BATCHES = (1, 8)
FORMATS = ("int8", "int4", "w8a8")
"""Of our weights, beside float32."""
Generate = Callable[[int, int], float]
"""(sequences, new tokens of each) to seconds."""


class Ours:
    """The core of the bundled engine, without HTTP."""

    def __init__(self, model: str, weight_format: str = "as-dtype") -> None:
        config = PolicyConfig(kv_tokens=16_384, token_budget=8192)
        computation = Computation(weight_format=weight_format)
        options = ServeOptions(model=model, policies=config, computation=computation)
        self._core, self._facts = build_core(options)
        self._requests = 0

    def __call__(self, sequences: int, new_tokens: int) -> float:
        """Return the seconds that all answers take."""
        began_s = time.perf_counter()
        for _ in range(sequences):
            self._requests += 1
            draw = random.Random(self._requests)
            prompt = [draw.randrange(300, 30_000) for _ in range(PROMPT_TOKENS)]
            params = SamplingParams(new_tokens, ignore_eos=True)
            self._core.add(str(self._requests), prompt, params, self._core.clock())
        while self._core.unfinished:
            self._core.step(self._core.clock())
        return time.perf_counter() - began_s

    def host_seconds(self, sequences: int, steps: int) -> list[float]:
        """Return, for each step, the seconds outside of the model and of sampling."""
        runner, spent_s = self._core.executor, [0.0]
        assert isinstance(runner, Runner)

        def timed(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*given: Any, **options: Any) -> Any:
                began_s = time.perf_counter()
                result = function(*given, **options)
                spent_s[0] += time.perf_counter() - began_s
                return result

            return call

        for _ in range(sequences):
            self._requests += 1
            params = SamplingParams(steps + 10, ignore_eos=True)
            self._core.add(str(self._requests), [300] * PROMPT_TOKENS, params, self._core.clock())
        self._core.step(self._core.clock())
        found = []
        with patch.object(Decoder, "forward", timed(Decoder.forward)):
            place = "servetwin.engine.core.runner"
            with (
                patch(f"{place}.new_tokens", timed(new_tokens)),
                patch(f"{place}.argmax", timed(argmax)),
            ):
                for _ in range(steps):
                    spent_s[0], began_s = 0.0, time.perf_counter()
                    self._core.step(self._core.clock())
                    found.append(time.perf_counter() - began_s - spent_s[0])
        while self._core.unfinished:
            self._core.step(self._core.clock())
        return found


def transformers_generate(config: ModelConfig) -> Generate:
    """Return ``generate`` of a Llama of the same shape."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import LlamaConfig, LlamaForCausalLM
    options: dict[str, Any] = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.ffn_size,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "tie_word_embeddings": config.tie_embeddings,
    }
    model: Any = LlamaForCausalLM(LlamaConfig(**options))
    model.eval()

    def generate(sequences: int, new_tokens: int) -> float:
        prompts = torch.randint(300, 30_000, (sequences, PROMPT_TOKENS))
        began_s = time.perf_counter()
        model.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            max_new_tokens=new_tokens,
            min_new_tokens=new_tokens,
            do_sample=False,
            pad_token_id=0,
        )
        return time.perf_counter() - began_s

    return generate


@contextmanager
def llama_cpp_generate(config: ModelConfig) -> Iterator[Generate | None]:
    """Yield llama.cpp in a process of its own; None where no interpreter has it."""
    python = os.environ.get("LLAMA_CPP_PYTHON")
    if python is None:
        yield None
        return
    shape = json.dumps(asdict(config), default=str)
    command = [python, "-m", "tests.benchmarks.llama_cpp_peer", shape, str(PROMPT_TOKENS)]
    with subprocess.Popen(
        command, env=python_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        to, back = process.stdin, process.stdout

        def generate(sequences: int, new_tokens: int) -> float:
            to.write(f"{sequences} {new_tokens}\n")
            to.flush()
            return float(back.readline())

        yield generate
        to.close()


def read_bytes_per_s() -> Callable[[], float]:
    """Return what reads 512 MB of memory with one thread: a sum."""
    block = torch.ones(1 << 27)

    def read() -> float:
        began_s = time.perf_counter()
        block.sum()
        return block.nbytes / (time.perf_counter() - began_s)

    return read


def step_seconds(generate: Generate, sequences: int) -> float:
    """Return the seconds of one decode step."""
    first_s = generate(sequences, 1)
    return (generate(sequences, NEW_TOKENS) - first_s) / (NEW_TOKENS - 1)


def measure(model: str, rounds: int) -> None:
    """Run the rounds and print the medians and their ratios."""
    torch.set_num_threads(1)
    config, found = model_preset(model), defaultdict[tuple[str, int], list[float]](list)
    ours = Ours(model)
    read, rates = read_bytes_per_s(), list[float]()
    with torch.inference_mode(), llama_cpp_generate(config) as llama_cpp:
        peers: dict[str, Generate] = {
            "ours": ours, "transformers": transformers_generate(config)
        }  # fmt: skip
        peers |= {f"ours, {form}": Ours(model, form) for form in FORMATS}
        if llama_cpp:
            peers["llama.cpp"] = llama_cpp
        for number in range(rounds + 1):
            if number:  # the first round warms up
                rates.append(read())
            for batch in BATCHES:
                for name, generate in peers.items():
                    step_s = step_seconds(generate, batch)
                    if number:
                        found[name, batch].append(step_s)
    lines = ["| sequences | engine | ms a step | times ours |", "|---|---|---|---|"]
    for (name, batch), steps in sorted(found.items(), key=lambda item: item[0][1]):
        ratio = median(a / b for a, b in zip(steps, found["ours", batch], strict=True))
        lines.append(f"| {batch} | {name} | {1e3 * min(steps):.1f} | {ratio:.2f} |")
    context = PROMPT_TOKENS + NEW_TOKENS / 2
    needed = 4 * parameters(config) + context * config.kv_bytes_per_token(4)
    share = median(needed / s / r for s, r in zip(found["ours", 1], rates, strict=True))
    lines.append(
        f"\nread of memory {max(rates) / 1e9:.1f} GB/s; our step at batch 1: {share:.0%} of it"
    )
    host_s = ours.host_seconds(8, 300)
    lines.append(f"a step of 8 beside the model and sampling: {1e3 * median(host_s):.3f} ms")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="large")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--processor-time", action="store_true", help="where others compute too")
    given = parser.parse_args()
    clock = time.process_time if given.processor_time else time.perf_counter
    with patch.object(
        time, "perf_counter", clock
    ):  # llama.cpp has a process and a clock of its own
        measure(given.model, given.rounds)
