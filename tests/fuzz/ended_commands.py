"""End long commands at random moments: ``python -m tests.fuzz.ended_commands --each 20``.

A command that calibrates waits more than it works: it is ended a random delay after one of its
lines of progress, a sweep after it has kept its first point, any other one after a random time of
its processors. The signals are SIGKILL, SIGINT and SIGTERM. After that no file under a final name
may be torn: JSON, YAML, Parquet, CSV and traces can be read, ``report`` either reads a run folder,
which then says that it was cut off unless the command had ended, or refuses it in one line. A sweep
that is run again goes on with the points that were kept, and says so; a profile says whether its
calibration was cut off. Nothing but the last lines of
an interrupted command, and no traceback, is written; its input was right: its exit code is not 2.
"""

import argparse
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import yaml

from servetwin.sim.step_times.profile import load_profile
from tests.support.mock_process import mock_process, servetwin_process

SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
COMMANDS: Mapping[str, str] = {
    "generate": "workload generate --requests 100000 --rate 50 --out {out}/made.jsonl",
    "replay": "replay {trace} --model llama-3-8b --gpu h100 --replications 0 --out {out}/run",
    "sweep": "sweep {short} --model llama-3-8b --gpu h100 --slo ttft=500ms --processes 2 "
    "--vary max_seqs=8,16,32,64 --rates 2,4,8,16 --out {out}/grid.csv",
    "capacity": "capacity {short} --model llama-3-8b --gpu h100 --slo ttft=500ms",
    "plan": "plan {short} --model llama-3-8b --slo ttft=500ms --processes 2 --out {out}/manifests",
    "loadtest": "loadtest {url} --trace {short} --limit 200 --rate 20 --out {out}/load",
    "verify": "verify --trace {short} --url {url} --out {out}/verify --limit 20 --repeats 2 "
    "--max-requests 60 --utilisation 0.5",
    "calibrate": "calibrate --url {url} --out {out}/profile.json --rounds 1 --max-requests 60",
    "calibrate-bundled": "calibrate --model tiny --out {out}/profile.json --rounds 1",
}
"""Long commands; each writes in ``out`` alone."""
SPANS_S: Mapping[str, float] = {
    "generate": 5, "replay": 7, "sweep": 6, "capacity": 8, "plan": 8, "loadtest": 4,
}  # fmt: skip
"""The latest moment at which each is ended, in seconds of processor time; 1.5 start it."""
LINES: Mapping[str, int] = {"verify": 17, "calibrate": 8, "calibrate-bundled": 4}
"""The latest line of progress after which each is ended."""
KEEPS: Mapping[str, str] = {"sweep": "grid.csv"}
"""The file to which a command appends what it keeps: it is ended after the first row."""
DELAY_S = 2.0
"""The longest time from that line, or row, to the end."""
EARLY = 0.2
"""The share that is ended while it starts."""


class Torn(AssertionError):
    """What a command that was ended left behind, or said."""


def check_files(folder: Path) -> int:
    """Raise where a file under a final name cannot be read; return how many can."""
    count = 0
    for path in sorted(folder.rglob("*")):
        if path.is_dir() or path.name.startswith(".") or path.name == "journal.jsonl":
            continue
        try:
            _read(path)
        except Exception as error:
            raise Torn(f"{path.relative_to(folder)}: {error}") from error
        count += 1
    return count


def _read(path: Path) -> None:
    text = path.suffix not in (".parquet", ".gz") and path.read_text()
    if path.suffix == ".parquet":
        pd.read_parquet(path)
    elif path.suffix == ".json":
        json.loads(str(text))
    elif path.suffix in (".yaml", ".yml"):
        list(yaml.safe_load_all(str(text)))
    elif path.suffix == ".jsonl":
        list(map(json.loads, str(text).splitlines()))
    elif path.suffix == ".csv":
        pd.read_csv(path)


def check_profile(path: Path, code: int) -> None:
    """Raise unless a profile of a command that was ended says so, and no other does."""
    if path.exists():
        ended = load_profile(str(path)).ended_early
        if bool(ended) != (code == 1):
            raise Torn(f"code {code}, and the profile ended early: {ended}")


def run_folders(folder: Path) -> Iterator[Path]:
    """Yield the folders that have a run, or the journal of one."""
    for name in ("summary.json", "journal.jsonl"):
        for path in sorted(folder.rglob(name)):
            yield path.parent


def check_reports(folder: Path, ended: bool) -> str:
    """Return how ``report`` takes what is left; raise for a traceback or an unmarked cut."""
    words = []
    for place in run_folders(folder):
        page_at = folder.parent / "report.html"
        page_at.unlink(missing_ok=True)
        done = _servetwin("report", place, "--out", page_at)
        if "Traceback" in done.stderr or done.returncode not in (0, 2):
            raise Torn(f"report {place.name}: {done.stderr[-600:]}")
        page = page_at.read_text() if done.returncode == 0 else ""
        marked = "CUT OFF" in page
        if page and not (marked or ended or _is_whole(place)):
            raise Torn(f"{place.name} looks complete")
        words.append("cut off" if marked else "whole" if page else "refused")
    return ", ".join(sorted(set(words))) or "nothing"


def _is_whole(folder: Path) -> bool:
    """Whether every request of a run has ended by itself."""
    counts = json.loads((folder / "summary.json").read_text())["requests"]
    return bool(counts["finished"] == counts["total"])


def _servetwin(*arguments: object) -> "subprocess.CompletedProcess[str]":
    process = servetwin_process(*arguments)
    out, err = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def cpu_s(group: int) -> float:
    """Return the processor time of a command and its workers: a busy machine changes no moment."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            ticks += (int(fields[2]) == group) * (int(fields[11]) + int(fields[12]))
    return ticks / os.sysconf("SC_CLK_TCK")


def rows_kept(path: Path) -> int:
    """Return how many whole rows a file has below its header."""
    return max(0, path.read_bytes().count(b"\n") - 1) if path.exists() else 0


class Moment(NamedTuple):
    """When a command is ended: so long after its ``line`` of progress, after the first row that it
    ``keeps`` in a file, or of processor time."""

    seconds: float
    line: int = 0
    keeps: str = ""

    def await_it(self, process: "subprocess.Popen[str]", folder: Path) -> str:
        """Wait, at most until the command has ended by itself; return the lines so far."""
        assert process.stderr
        lines = [process.stderr.readline() for _ in range(self.line)]
        while self.keeps and process.poll() is None and not rows_kept(folder / self.keeps):
            time.sleep(0.005)
        zero_s = time.monotonic()
        passed_s = 0.0
        while process.poll() is None and passed_s < self.seconds:
            time.sleep(0.02)
            is_wall = lines or self.keeps
            passed_s = time.monotonic() - zero_s if is_wall else cpu_s(process.pid)
        return "".join(lines)

    def __str__(self) -> str:
        after = f"after line {self.line}" if self.line else "of CPU"
        return f"{self.seconds:.2f} s {'after a row' if self.keeps else after}"


def moment(name: str, rng: np.random.Generator) -> Moment:
    """Draw when to end a command."""
    if name in KEEPS:
        return Moment(float(rng.uniform(0, DELAY_S)), keeps=KEEPS[name])
    if name in LINES and rng.random() > EARLY:
        return Moment(float(rng.uniform(0, DELAY_S)), int(rng.integers(1, LINES[name] + 1)))
    span_s = (0.1, 1.5) if name in LINES or rng.random() < EARLY else (1.5, SPANS_S[name])
    return Moment(float(rng.uniform(*span_s)))


def end(command: str, number: int, when: Moment, folder: Path) -> str:
    """Run a command, end it, and return what became of it. Raises ``Torn``."""
    process = servetwin_process(*command.split())
    begun = when.await_it(process, folder)
    ended = process.poll() is not None
    try:
        if not ended:
            process.send_signal(number)
        out, err = process.communicate(timeout=120)
        err = begun + err
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its workers, where it was killed
    if "Traceback" in out + err:
        raise Torn(f"a traceback: {err[-800:]}")
    if not ended and number != signal.SIGKILL and process.returncode == 0 and not out:
        raise Torn("exit code 0 without a result")
    if process.returncode in (2, 70):
        raise Torn(f"code {process.returncode}: {err[-600:]}")
    files = check_files(folder)
    check_profile(folder / "profile.json", process.returncode)
    reports = check_reports(folder, ended)
    goes_on = check_goes_on(command, folder / when.keeps) if when.keeps else ""
    return f"code {process.returncode}, {files} files, {reports}{goes_on}"


def check_goes_on(command: str, path: Path) -> str:
    """Return how many points were kept; raise unless the same command goes on with them."""
    kept = path.read_bytes()
    kept = kept[: kept.rfind(b"\n") + 1]
    count = rows_kept(path)
    again = _servetwin(*command.split())
    lines = path.read_bytes().splitlines()
    if again.returncode or f"{count} of {len(lines) - 1} points are in" not in again.stderr:
        raise Torn(f"with {count} kept, code {again.returncode}: {again.stderr[-600:]}")
    if set(kept.splitlines()) - set(lines) or len({*lines}) < len(lines):
        raise Torn("a point that was kept is another one, or is there twice")
    left = sorted(one.name for one in path.parent.iterdir() if one != path)
    if left:
        raise Torn(f"{', '.join(left)} is left")
    return f", {count} of {len(lines) - 1} points kept"


def try_all(names: list[str], each: int, seed: int) -> int:
    """End each command ``each`` times by each signal; return how many left something torn."""
    torn = 0
    mock = mock_process("--ttft-ms", 5, "--itl-ms", 1)
    with tempfile.TemporaryDirectory() as base, mock as (_, url):
        places = {"url": url}
        for trace, requests, rate in (("trace", 60000, 12), ("short", 400, 4)):
            places[trace] = f"{base}/{trace}.jsonl"
            if any(f"{{{trace}}}" in COMMANDS[name] for name in names):
                load = ("--requests", requests, "--rate", rate, "--out", places[trace])
                _servetwin("workload", "generate", *load)
        for place, name in enumerate(names):
            for turn in range(each):
                for number in SIGNALS:
                    rng = np.random.default_rng([seed, place, turn, number])
                    when = moment(name, rng)
                    folder = Path(base) / "out"
                    folder.mkdir()
                    command = COMMANDS[name].format(out=folder, **places)
                    what = f"{name} {number.name} {when}"
                    try:
                        say(f"{what}: {end(command, number, when, folder)}")
                    except (Torn, subprocess.TimeoutExpired) as error:
                        torn += 1
                        say(f"TORN {what}, seed {seed} turn {turn}: {error}")
                    shutil.rmtree(folder)
    return torn


def say(line: str) -> None:
    """Write a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--each", type=int, default=20)
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    parser.add_argument("names", nargs="*", default=list(COMMANDS), metavar="COMMAND")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells let jobs ignore it
    torn = try_all(options.names or list(COMMANDS), options.each, options.seed)
    say(f"{torn} torn")
    sys.exit(bool(torn))


if __name__ == "__main__":
    main()
