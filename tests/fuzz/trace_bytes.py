"""Fuzz trace files: every reader reads a changed sample of its format, or refuses it."""

import sys
import tempfile
from pathlib import Path

import numpy as np

from tests.fuzz.campaign import command_line
from tests.fuzz.mutation import mutated_bytes
from workloads.errors import TraceError
from workloads.reading import read_trace

SAMPLES = (
    b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,374,44\n",
    b'{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}\n',
    b"arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,3,4\n",
    b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,m,3,4,7,API log\n",
    b'{"arrival_s": 0.5, "request_id": "a", "prompt_tokens": 1, "output_tokens": 1}\n',
    b'{"prompt": "one two", "max_tokens": 5}\n',
    b'[{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}]\n',
)


def draw(rng: np.random.Generator) -> bytes:
    """Return a sample of a format after some random changes."""
    return mutated_bytes(rng, SAMPLES[rng.integers(len(SAMPLES))])


def check(data: bytes) -> None:
    """Read a trace; nothing but an error of ours may come out."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t"
        path.write_bytes(data)
        try:
            read_trace(path)
        except TraceError as error:
            str(error).encode(errors="backslashreplace")


if __name__ == "__main__":
    sys.exit(command_line("trace_bytes", draw, check))
