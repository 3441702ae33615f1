"""All GPU figures in one go: ``make gpu``.

Runs the GPU tests, calibrates Llama shapes with random weights, verifies each policy, and leaves a
small folder: profiles, verdicts, one table with date and card, one log. A part that fails or takes
too long is named in the log, and the rest goes on.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SHAPES = ("llama-0.6b", "llama-1b", "llama-8b")
POLICIES = (
    "static+contiguous",
    "static+paged",
    "continuous+contiguous",
    "continuous+paged",
    "continuous+paged+prefix",
)
ENGINE = (
    *("--kv-tokens", "131072", "--max-model-len", "8192"),
    *("--max-seqs", "64", "--token-budget", "2048"),
)
LIMIT_S = 240


def parts(out: Path, shapes: list[str], device: str) -> Iterator[tuple[str, list[str]]]:
    """Name and arguments of each part, in order of importance."""
    cli = ["-m", "app.cli"]
    engine = [*ENGINE, "--device", device]
    yield "tests", ["-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider"]
    for shape in shapes:
        profile = str(out / f"{shape}.json")
        yield (
            f"calibrate {shape}",
            [*cli, "calibrate", "--model", shape, "--out", profile, "--rounds", "2", *engine],
        )
        chosen = [word for policy in POLICIES for word in ("--policy", policy)]
        yield (
            f"verify {shape}",
            [*cli, "verify", "--model", shape, "--json", *chosen, *engine],
        )


def main() -> int:
    """Run every part; the exit code is the number of parts that failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/gpu"))
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES))
    parser.add_argument("--device", default="cuda", help="cpu tries the script itself")
    parser.add_argument("--limit-s", type=float, default=LIMIT_S, help="for each part")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    rows: list[str] = []
    failed = 0
    with (given.out / "log.txt").open("w") as log:
        for name, arguments in parts(given.out, given.shapes, given.device):
            code, output = _run(arguments, given.limit_s)
            log.write(f"== {name}: exit code {code}\n{output}\n")
            log.flush()
            rows += _rows(name, output)
            failed += code != 0
    (given.out / "table.md").write_text(_table(rows))
    return failed


def _run(arguments: list[str], limit_s: float) -> tuple[int, str]:
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 124, f"took more than {limit_s:g} s"
    return done.returncode, done.stdout + done.stderr[-4000:]


def _rows(name: str, output: str) -> list[str]:
    if not name.startswith("verify"):
        return []
    lines = [line for line in output.splitlines() if line.startswith("{")]
    found = json.loads(lines[0])["verifications"] if lines else []
    return [_row(name.removeprefix("verify "), one) for one in found]


def _row(shape: str, one: dict[str, Any]) -> str:
    judged = [row for row in one["comparison"]["metrics"] if row["limit"] is not None]
    cells = [
        f"{row['predicted']['value']:.4g} / {row['measured']:.4g} ({100 * row['error']:+.1f} %, "
        f"noise {100 * row['noise']:.1f} %)"
        for row in judged
    ]
    verdict = "holds" if one["comparison"]["holds"] else "fails"
    return "| " + " | ".join([shape, one["policy"], *cells, verdict]) + " |"


def _table(rows: list[str]) -> str:
    head = ["shape", "policy", "throughput tokens/s", "TPOT mean s", "TTFT mean s", "TTFT p90 s"]
    return "\n".join(
        [
            f"Predicted / measured (error, noise floor), {time.strftime('%Y-%m-%d')}, {_card()}",
            "",
            "| " + " | ".join([*head, "verdict"]) + " |",
            "|---" * (len(head) + 1) + "|",
            *rows,
            "",
        ]
    )


def _card() -> str:
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "no card found"


if __name__ == "__main__":
    sys.exit(main())
