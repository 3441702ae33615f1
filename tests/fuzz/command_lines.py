"""Fuzz the command line: ``python -m tests.fuzz.command_lines --minutes 1``.

A right command gets up to five more options, drawn from those that it declares, with right and
wrong values of their types, an option of another tool, or an input that is broken. Whatever comes
of it: one of the exit codes, no traceback, an explanation where it is refused, and JSON without NaN
where it is done.
"""

import gzip
import inspect
import json
import os
import re
import shlex
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from servetwin.app.command import value_words
from tests.fuzz.campaign import command_line
from tests.fuzz.mutation import ODD_VALUES, mutated_bytes, mutated_json
from tests.fuzz.trace_bytes import draw as draw_trace
from tests.support.command import commands, servetwin
from tests.support.recorded_files import vllm_bench

SERVER = "--model llama-3-8b --gpu h100"
COMMANDS: Mapping[str, str] = {
    "replay": f"replay {{trace}} {SERVER}",
    "capacity": f"capacity {{trace}} {SERVER} --slo ttft=500ms",
    "sweep": f"sweep {{trace}} {SERVER} --slo ttft=500ms --vary max_seqs=4,8 --processes 1",
    "plan": "plan {trace} --model llama-3-8b --slo ttft=500ms --processes 1",
    "workload stats": "workload stats {trace}",
    "workload generate": "workload generate --requests 20 --rate 3 --out {out}",
    "workload anonymise": "workload anonymise {trace} {out}",
    "workload convert": "workload convert {trace} {out}",
    "techniques memory": "techniques memory --model llama-3-8b",
    "techniques latency": "techniques latency --model llama-3-8b",
    "list devices": "list devices",
    "report": "report {run}",
    "compare": "compare {run} {run}",
    "explain": "explain {run} generated:3",
    "loadtest": "loadtest http://127.0.0.1:9 --trace {trace} --limit 5",
    "loadtest import": "loadtest import {bench} --out {out}",
}
"""Commands that end soon by themselves."""
NEVER = re.compile(
    r"ray|processes|plot|picture|debug|completion|help|duration|workers|users|bad_rows"
)
"""Options that start other programs, may well ask for hours, or list one row a line."""
NUMBERS = [
    "0", "-1", "1", "2", "3", "5", "16", "100", "2.5", "0.5", "1e400", "-0", "nan", "inf", "-inf",
    "1e-320", "9" * 40, "", " 3",
    "0x10", "\N{FULLWIDTH DIGIT FIVE}", "1_000", "1,5", "true", "3 s", "--", "1e300",
]  # fmt: skip
TEXTS = [
    "", " ", "a", "a=b", "=", ",", "a=1,b=2", "\u2028", "'", '"', "../../x", "http://[::1", "{}",
    "[", "null", "é" * 50, "a" * 3000, "-", "x:y:z", "%s", "{0}", "ttft=-1ms", "ttft=1e400s",
    "h100:0", "http://127.0.0.1:99999", "x.py:Class", "max_seqs=0", "max_seqs=8", "1:2:3", "@",
    "~", "$HOME",
]  # fmt: skip
OTHERS = [
    "--tensor-parallel-size 2", "--max-num-seqs 256", "--max-num-batched-tokens 8192",
    "--gpu-memory-utilization 0.9", "--enable-prefix-caching", "--no-enable-chunked-prefill",
    "--kv-cache-dtype fp8", "--block-size 16", "--speculative-config {}", "--num-prompts 100",
    "--request-rate inf", "--random-input-len 512", "--dataset-name sharegpt", "--tp-size 2",
    "--chunked-prefill-size -1", "--mem-fraction-static 0.8", "--schedule-policy lpm",
    "--rate-type sweep", "--max-seconds 30", "--target http://127.0.0.1:9", "--tp 2", "-tp 2",
    "--data prompt_tokens=512,output_tokens=128", "--burstiness 1.0", "--ignore-eos",
    "--percentile-metrics ttft,tpot", "--goodput ttft:500", "--backend openai-chat",
]  # fmt: skip
"""Options of vLLM, SGLang and GuideLLM, as from the fingers of their users."""
GIVEN = ("{trace}", "{run}", "{bench}", "{out}")
PLACES = ("folder", "pipe", "loop", "null", "missing", "below a file", "long")
"""What stands in the place of a file, and is none."""
RECODED: Mapping[str, Callable[[bytes], bytes]] = {
    "utf-16": lambda data: data.decode().encode("utf-16"),
    "utf-8-sig": lambda data: data.decode().encode("utf-8-sig"),
    "utf-32-be": lambda data: data.decode().encode("utf-32-be"),
    "crlf": lambda data: data.replace(b"\n", b"\r\n"),
    "cr": lambda data: data.replace(b"\n", b"\r"),
    "empty": lambda data: b"\n",
    "spaces": lambda data: b" \n" * 50,
    "gzip": gzip.compress,
    "cut gzip": lambda data: gzip.compress(data)[:-9],
    "nan": lambda data: re.sub(rb"\d+", b"NaN", data, count=9),
    "huge": lambda data: re.sub(rb": ?\d+", b": " + b"9" * 400, data, count=9),
    "twice": lambda data: data.replace(b"{", b'{"request_id": "x", "request_id": "x", '),
    "deep": lambda data: data + b"[" * 50_000,
    "deep value": lambda data: data + b'{"arrival_s": ' + b"[" * 900 + b"]" * 900 + b"}\n",
    "nul": lambda data: data.replace(b" ", b"\0"),
    "one line": lambda data: data.replace(b"\n", b" "),
    "array": lambda data: b"[" + data.strip().replace(b"\n", b",") + b"]",
}
"""A right trace in odd encodings and shapes."""
CODES = (0, 1, 2, 3)


def draw(rng: np.random.Generator) -> bytes:
    """Return a command line as JSON, and after a line end what its broken input holds, if any."""
    name = list(COMMANDS)[rng.integers(len(COMMANDS))]
    words = shlex.split(COMMANDS[name])
    command = commands().commands[name]
    hints = inspect.signature(command.callback).parameters
    options = [option for option in command.options if not NEVER.search(option.name)]
    for place in rng.permutation(len(options))[: rng.integers(0, 6)]:
        option = options[place]
        words += [option.opts[0], *_value(rng, option, hints[option.name].annotation)]
    if name in ("replay", "capacity", "workload stats") and rng.random() < 0.5:
        words.append("--json")
    if rng.random() < 0.1:
        words += shlex.split(str(rng.choice(OTHERS)))
    if rng.random() < 0.15:
        words = [f"{{{rng.choice(PLACES)}}}" if word in GIVEN else word for word in words]
    broken, kind = b"", rng.random()
    if kind < 0.2:
        broken = f"RECODED {rng.choice(list(RECODED))}".encode()
    elif kind < 0.45:
        broken = draw_trace(rng).partition(b"\n")[2] if rng.random() < 0.7 else _broken_json(rng)
    return json.dumps(words).encode() + b"\n" + broken


def odd_places(folder: Path) -> dict[str, str]:
    """Make what is no file, and return the places by their names."""
    (folder / "sub").mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "file").write_bytes(b"x")
    places = {
        "folder": "sub", "pipe": "pipe", "loop": "loop", "null": "/dev/null", "missing": "missing",
        "below a file": "file/below", "long": "x" * 300,
    }  # fmt: skip
    return {f"{{{name}}}": str(folder / place) for name, place in places.items()}


def _value(rng: np.random.Generator, option: Any, hint: Any) -> list[str]:
    """Return a value of an option, right or wrong; none for a flag."""
    takes = value_words(hint)
    if option.is_flag or not takes:
        return []
    if "|" in takes and rng.random() < 0.6:
        return [str(rng.choice(takes.split("|")))]
    is_number = "INTEGER" in takes or "NUMBER" in takes
    values = TEXTS + NUMBERS if rng.random() < 0.2 else NUMBERS if is_number else TEXTS
    return [values[rng.integers(len(values))]]


def _broken_json(rng: np.random.Generator) -> bytes:
    value = mutated_json(rng, {"requests": {"total": 5}, "trace": ODD_VALUES[3:9], "seed": 1})
    return mutated_bytes(rng, json.dumps(value).encode())


@cache
def _samples() -> Path:
    """Return a folder with a right trace and a run of it."""
    folder = Path(tempfile.mkdtemp(prefix="command-lines-"))
    trace = folder / "trace.jsonl"
    assert servetwin("workload", "generate", "--requests", 150, "--out", trace).code == 0
    (folder / "bench.json").write_text(vllm_bench())
    done = servetwin("replay", trace, *SERVER.split(), "--out", folder / "run")
    assert done.code == 0, done.err
    return folder


class CommandLines:
    """The check, and how often each command ended with each code."""

    def __init__(self) -> None:
        self.codes: Counter[tuple[str, int]] = Counter()

    def check(self, data: bytes) -> None:
        """Run one command line in a folder of its own; raise ``AssertionError`` if it fails."""
        line, _, broken = data.partition(b"\n")
        samples, before = _samples(), Path.cwd()
        with tempfile.TemporaryDirectory() as folder:
            given = Path(folder) / "given"
            if recode := RECODED.get(broken.decode(errors="replace").removeprefix("RECODED ")):
                name = "bench.json" if b"{bench}" in line else "trace.jsonl"
                broken = recode((samples / name).read_bytes())
            given.write_bytes(broken)
            run = samples / "run"
            if broken and b"{run}" in line:
                run = Path(folder) / "run"
                run.mkdir()
                for file in (samples / "run").iterdir():
                    (run / file.name).write_bytes(file.read_bytes())
                (run / ("summary.json" if len(broken) % 2 else "scenario.yaml")).write_bytes(broken)
            places = {
                "{trace}": str(given if broken else samples / "trace.jsonl"),
                "{bench}": str(given if broken else samples / "bench.json"),
                "{run}": str(run), "{out}": f"{folder}/made.jsonl",
                **odd_places(Path(folder)),
            }  # fmt: skip
            words = [places.get(word, word) for word in json.loads(line)]
            os.chdir(folder)
            try:
                done = servetwin(*words)
            finally:
                os.chdir(before)
        name = max((name for name in COMMANDS if " ".join(words).startswith(name)), key=len)
        self.codes[name, done.code] += 1
        assert done.code in CODES, f"code {done.code}: {done.err[-500:]}"
        assert "Traceback" not in done.out + done.err, done.err[-900:]
        if done.code == 2:  # behind the progress of a slow search
            error = re.search(r"^servetwin: .*", done.err, re.MULTILINE | re.DOTALL)
            assert error, done.err
            assert len(error[0].splitlines()) < 4, done.err
        if done.code == 0 and words[-1] == "--json":
            json.loads(done.out, parse_constant=_no_number)


def _no_number(text: str) -> None:
    raise AssertionError(f"{text} in JSON")


def main() -> int:
    """Fuzz as the command line asks, and say which codes there were."""
    lines = CommandLines()
    code = command_line("command_lines", draw, lines.check)
    for (name, ended), count in sorted(lines.codes.items()):
        sys.stdout.write(f"{name}: {count} with exit code {ended}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
