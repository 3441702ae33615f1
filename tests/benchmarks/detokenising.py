"""What a step of the core pays for text: ``python -m tests.benchmarks.detokenising``.

The same 32 outputs advance in two cores without a model, in turns: one makes the text of every
token in its thread (as it must where stop strings are given), one leaves it to the HTTP process.
"""

from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import typer

from servetwin.engine.core.core import EngineCore
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.text.byte_tokenizer import ByteTokenizer
from servetwin.engine.text.file_tokenizer import FileTokenizer
from servetwin.engine.text.tokenizer import Tokenizer
from servetwin.policies.config import PolicyConfig
from tests.support.fake_engine import fake_core
from tests.support.text_tokenizers import byte_level, sentence_pieces, write_tokenizer

SEQUENCES, STEPS = 32, 600


def core_with(tokenizer: Tokenizer, stop: tuple[str, ...]) -> EngineCore:
    core = fake_core(PolicyConfig(kv_tokens=1 << 16, max_seqs=SEQUENCES, token_budget=4096))
    core.tokenizer = tokenizer
    params = SamplingParams(STEPS + 10, ignore_eos=True, stop=stop)
    for index in range(SEQUENCES):
        core.add(str(index), [260 + index], params, 0.0)
    return core


def step_us(tokenizer: Tokenizer) -> tuple[float, float]:
    """Median microseconds of a step with and without text, taken in turns."""
    both = (core_with(tokenizer, ("\x00never",)), core_with(tokenizer, ()))
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(STEPS):
        for core, taken in zip(both, seconds, strict=True):
            begin_s = perf_counter()
            core.step(0.0)
            taken.append(perf_counter() - begin_s)
    with_text, without = (median(taken) * 1e6 for taken in seconds)
    return with_text, without


def main() -> None:
    typer.echo(f"microseconds of a step of {SEQUENCES} sequences")
    typer.echo(f"{'tokenizer':18}{'text in the core':>18}{'outside':>10}{'saved':>9}")
    with TemporaryDirectory() as folder:
        write_tokenizer(Path(folder), byte_level())
        kinds: dict[str, Tokenizer] = {"bytes": ByteTokenizer()}
        kinds["byte-level BPE"] = FileTokenizer(Path(folder), ())
        write_tokenizer(Path(folder), sentence_pieces(600))
        kinds["sentence pieces"] = FileTokenizer(Path(folder), ())
        for name, tokenizer in kinds.items():
            inside, outside = step_us(tokenizer)
            typer.echo(f"{name:18}{inside:18.0f}{outside:10.0f}{inside - outside:9.0f}")


if __name__ == "__main__":
    main()
