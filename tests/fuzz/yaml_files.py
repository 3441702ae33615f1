"""Fuzz YAML files: a scenario and a plan of faults are read, or refused by an error of ours."""

import sys

import numpy as np

from app.scenario.scenario_file import parse_scenario
from tests.fuzz.campaign import command_line
from tests.fuzz.mutation import mutated_bytes
from workloads.errors import ServetwinError

SAMPLES = (
    b"workload:\n  requests: 40\n  rate_per_s: 2.5\npolicies:\n  max_seqs: 8\nseed: 3\n",
    b"server: {model: llama-3-8b, hardware: h100}\ncluster: {replicas: 2}\npreset: vllm-v1\n",
    b"a: &a [1, 2]\nb: [*a, *a]\nc: {d: 1:30:00, e: .inf, f: 2001-01-01}\n",
)


def draw(rng: np.random.Generator) -> bytes:
    """Return a sample after some random changes."""
    return mutated_bytes(rng, SAMPLES[rng.integers(len(SAMPLES))])


def check(data: bytes) -> None:
    """Read a scenario; nothing but an error of ours of one line may come out."""
    try:
        parse_scenario(data, "s.yaml")
    except ServetwinError as error:
        if "\n" in str(error):
            raise AssertionError(f"several lines: {error}") from error


if __name__ == "__main__":
    sys.exit(command_line("yaml_files", draw, check))
