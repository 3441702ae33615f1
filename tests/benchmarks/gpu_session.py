"""Every GPU figure in one go: ``make gpu``.

Measures which share of the card's own rates the engine's steps reach, runs the GPU tests,
calibrates Llama shapes with seeded random weights in bfloat16, and verifies each policy on each
shape. The folder then has a profile of each shape, ``results.jsonl`` with one line per part,
``table.md`` with the date and the card, and ``log.txt``. All are written after each part, and what
a part prints appears at once; when the time is up the rest is left to the next session, which skips
the parts that have a result. A part that fails or takes too long is named in the log.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import IO, Any

from servetwin.workloads.program.child_process import python_command, python_environment

SHAPES = ("llama-1b", "llama-8b", "llama-0.6b")
LARGEST = "llama-8b"
"""Nearest to the card's own rates: its speed comes first."""
POLICIES = (
    "static+contiguous",
    "static+paged",
    "continuous+contiguous",
    "continuous+paged",
    "continuous+paged+prefix",
)
SIZES = (
    *("--kv-tokens", "131072", "--max-model-len", "8192"),
    *("--max-seqs", "64", "--token-budget", "2048"),
)
LOAD = ("--prompt-scale", "4", "--output-scale", "8")
"""The bundled trace is made for a CPU; so much longer, a load test on a GPU lasts long enough."""
TRIAL_SIZES = ("--kv-tokens", "4096", "--max-model-len", "512", "--max-seqs", "4")
TRIAL_LOAD = ("--limit", "20", "--repeats", "1")
LIMIT_S = 240.0
MINUTES = 40.0
SHORTEST_S = 20.0
"""With less time than this left, no part is begun."""
TIMED_OUT = 124
CANNOT_TELL = 3
METRICS = {
    "output_throughput_tokens_per_s": ("throughput, tokens/s", 1.0),
    "tpot_s.mean": ("TPOT mean, ms", 1e3),
    "ttft_s.mean": ("TTFT mean, ms", 1e3),
    "ttft_s.p90": ("TTFT p90, ms", 1e3),
}


@dataclass(frozen=True, slots=True)
class SessionPart:
    """A piece of the session: the arguments of an interpreter that prints JSON, where it does."""

    name: str
    arguments: Sequence[str]


@dataclass(frozen=True, slots=True)
class PartResult:
    """What became of a part; ``record`` is the last JSON object that it printed."""

    name: str
    exit_code: int
    took_s: float
    record: Mapping[str, Any]
    said: str

    def as_dict(self) -> dict[str, Any]:
        """The line of ``results.jsonl``."""
        return {
            "part": self.name,
            "exit_code": self.exit_code,
            "took_s": round(self.took_s, 1),
            "record": self.record,
        }


def session_parts(out: Path, shapes: Sequence[str], device: str) -> Iterator[SessionPart]:
    """Every part, in order of importance; on a CPU, small ones that try the session itself."""
    on_gpu = device == "cuda"
    sizes: Sequence[str] = SIZES if on_gpu else TRIAL_SIZES
    load: Sequence[str] = LOAD if on_gpu else TRIAL_LOAD
    dtype = "bfloat16" if on_gpu else "float32"
    engine = ("--device", device, "--dtype", dtype)
    for shape in sorted(shapes, key=LARGEST.__ne__):
        speed = ("-m", "tests.benchmarks.device_shares", "--model", shape, *engine)
        yield SessionPart(f"speed {shape}", speed)
    yield SessionPart("GPU tests", ("-m", "tests.support.gpu_tests", *gpu_tests()))
    for shape in shapes:
        profile = ("--out", str(out / f"{shape}.json"), "--overwrite", "--rounds", "2")
        chosen = _command("calibrate", shape, *profile, *engine, *sizes)
        yield SessionPart(f"calibrate {shape}", chosen)
    for shape in shapes:
        for policy in POLICIES:
            chosen = _command("verify", shape, "--policy", policy, *load, *engine, *sizes)
            yield SessionPart(f"verify {shape} {policy}", chosen)


def gpu_tests() -> list[str]:
    """The test files with tests for a GPU; the others may need packages that are not here."""
    files = sorted(Path("tests").rglob("test_*.py"))
    marks = ("mark.gpu", "triton_device")
    return [str(path) for path in files if any(mark in path.read_text() for mark in marks)]


def _command(name: str, shape: str, *arguments: str) -> tuple[str, ...]:
    return ("-m", "servetwin", name, "--json", "--model", shape, *arguments)


def run_session(
    out: Path, parts: Iterable[SessionPart], limit_s: float = LIMIT_S, minutes: float = MINUTES
) -> int:
    """Run the parts that have not succeeded yet, until the time is up; return how many failed."""
    ends_s = time.monotonic() + 60 * minutes
    out.mkdir(parents=True, exist_ok=True)
    results = out / "results.jsonl"
    found = {one["part"]: one for one in map(json.loads, _lines(results)) if _has_result(one)}
    failed = left = 0
    for part in parts:
        if part.name in found:
            continue
        left_s = ends_s - time.monotonic()
        if left_s < SHORTEST_S:
            left += 1
            continue
        _say(f"== {part.name}")
        done = run_part(part, min(limit_s, left_s))
        _append(results, json.dumps(done.as_dict()))
        _append(out / "log.txt", f"== {part.name}: exit code {done.exit_code}\n{done.said}")
        found[part.name] = done.as_dict()
        (out / "table.md").write_text(table(list(found.values())))
        _say(f"== {part.name}: exit code {done.exit_code} after {done.took_s:.0f} s")
        if done.exit_code == TIMED_OUT and left_s < limit_s:
            left += 1
        else:
            failed += done.exit_code not in (0, CANNOT_TELL)
    if left:
        _say(f"{minutes:g} minutes are over; parts left: {left}. Run it again to go on.")
    return failed


def _has_result(one: Mapping[str, Any]) -> bool:
    return one["exit_code"] in (0, 1, CANNOT_TELL) and bool(one["record"])


def run_part(part: SessionPart, limit_s: float) -> PartResult:
    """Run one part and say what it says; end it, with all that it started, after ``limit_s``
    seconds.
    """
    began_s = time.monotonic()
    process = subprocess.Popen(
        python_command(*part.arguments),
        env=python_environment() | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    lines: list[str] = []
    reader = Thread(target=_follow, args=(process.stdout, lines), daemon=True)
    reader.start()
    try:
        exit_code = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        exit_code = TIMED_OUT
        lines.append(f"took more than {limit_s:g} s\n")
    finally:
        _end_group(process)
    reader.join(5.0)
    process.stdout.close()
    records = [line for line in list(lines) if line.startswith("{")]
    return PartResult(
        part.name,
        exit_code,
        time.monotonic() - began_s,
        json.loads(records[-1]) if records else {},
        "".join(lines)[-8000:],
    )


def _follow(stream: IO[str], lines: list[str]) -> None:
    """Keep what a part prints, and print it, but not its JSON."""
    for line in stream:
        lines.append(line)
        if not line.startswith("{"):
            _say(f"   {line.rstrip()}")


def _end_group(process: subprocess.Popen[str]) -> None:
    """End what is left of a part: a server that it started would keep the card's memory."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, how)
            process.wait(10.0)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """The whole session in Markdown: predictions beside measurements, calibrations, all parts."""
    head = ["shape", "policy", *(label for label, _ in METRICS.values()), "equal batches", ""]
    verified = [one for one in results if _is(one, "verify")]
    calibrated = [one for one in results if _is(one, "calibrate")]
    speeds = [row for one in results if _is(one, "speed") for row in _shares(one)]
    parts = [[one["part"], str(one["exit_code"]), f"{one['took_s']:.0f}"] for one in results]
    lines = [
        f"{time.strftime('%Y-%m-%d')}, {card()}, random weights, seed 0.",
        "",
        *_markdown(["shape", "step", "ms", "ms in a row", "share of the card's rate", ""], speeds),
        "",
        "Predicted / measured (error, its 90 % interval):",
        "",
        *_markdown(head, [_verified(one) for one in verified]),
        "",
        *_markdown(
            ["shape", "KV layout", "steps", "held-out error", "drift"],
            [row for one in calibrated for row in _calibrated(one)],
        ),
        "",
        *_markdown(["part", "exit code", "seconds"], parts),
        "",
    ]
    return "\n".join(lines)


def _is(one: Mapping[str, Any], command: str) -> bool:
    return one["part"].startswith(f"{command} ") and bool(one["record"])


def _shares(one: Mapping[str, Any]) -> Iterator[list[str]]:
    for figure in one["record"]["figures"]:
        times = (f"{1e3 * figure[name]:.3f}" for name in ("seconds", "device_seconds"))
        target = "" if figure["target"] is None else f"target {100 * figure['target']:.0f} %"
        share = f"{100 * figure['share']:.1f} %"
        yield [figure["model"], figure["step"], *times, share, target]


def _verified(one: Mapping[str, Any]) -> list[str]:
    _, shape, policy = one["part"].split(" ")
    record = one["record"]
    rows = {row["metric"]: row for row in record["comparison"]["metrics"]}
    cells = [_cell(rows[metric], factor) for metric, (_, factor) in METRICS.items()]
    batches = f"{record['identical_steps']} of {record['steps']}"
    return [shape, policy, *cells, batches, record["outcome"].replace("refuted", "**refuted**")]


def _cell(row: Mapping[str, Any], factor: float) -> str:
    if row["error"] is None:
        return "-"
    ends = [row["error_low"], row["error_high"]]
    interval = "" if None in ends else ", " + " to ".join(f"{100 * end:+.1f}" for end in ends)
    values = f"{factor * row['predicted']['value']:.4g} / {factor * row['measured']:.4g}"
    return f"{values} ({100 * row['error']:+.1f} %{interval})"


def _calibrated(one: Mapping[str, Any]) -> Iterator[list[str]]:
    shape = one["part"].partition(" ")[2]
    for layout, fit in one["record"]["layouts"].items():
        error = 100 * (fit["held_out_error"] or 0.0)
        yield [shape, layout, str(fit["steps"]), f"{error:.1f} %", f"{100 * fit['drift']:.1f} %"]


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def card() -> str:
    """The name of the GPU and its driver, as nvidia-smi tells them."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "no card found"


def has_cuda() -> bool:
    """Whether torch sees a CUDA device, found out in a process that gives its memory back."""
    code = "import torch; raise SystemExit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def _append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(f"{text}\n")


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the session; the exit code is 1 if a part failed, 2 without a CUDA device."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/gpu"))
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES))
    parser.add_argument("--device", default="cuda", help="cpu tries the session itself")
    parser.add_argument("--limit-s", type=float, default=LIMIT_S, help="for each part")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for the whole session")
    given = parser.parse_args(arguments)
    if given.device == "cuda" and not has_cuda():
        sys.stderr.write(f"make gpu: torch of {sys.executable} sees no CUDA device\n")
        return 2
    parts = session_parts(given.out, given.shapes, given.device)
    failed = run_session(given.out, parts, given.limit_s, given.minutes)
    _say("\n".join(_lines(given.out / "table.md")))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
