"""Files that nobody drew before: good ones with a few things changed, by seeds of the day.

Each goes to a command that reads it. Whatever the file says, a command ends with a code of its own
and one line; an error of servetwin itself (exit code 70) fails the test, with the seed.
"""

import copy
import json
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from servetwin.app.last_net import OUR_FAULT
from tests.support.command import SERVER
from tests.support.forked_commands import ForkedCommands, Outcome, forked_commands
from tests.support.paths import ROOT, SAMPLE

pytestmark = pytest.mark.slow

LASTS_S, MOST_S = 60.0, 10.0
ODD: tuple[Any, ...] = (
    None, -1, 0, 1e308, -1e308, float("inf"), float("nan"), 10**400, 2**63, True, "", "x", "nan",
    "٣", "５", "0x10", "1_000", " 5 ", "x" * 5000, [], {}, [[1]], {"a": {"b": 1}}, "../etc", "-5",
)  # fmt: skip
Job = tuple[tuple[object, ...], Path]


class Outside:
    """Writes changed files into the working folder of the commands."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self._rng = random.Random(seed)
        self._rows = [json.loads(line) for line in SAMPLE.read_text().splitlines()[:30]]
        self._profile = json.loads(next((ROOT / "sim").rglob("base-cpu.json")).read_text())

    def job(self) -> Job:
        """Return a command, and the changed file that it reads."""
        kinds = (self._trace, self._table, self._run, self._run, self._profile_file, self._scenario)
        return self._rng.choice(kinds)()

    def _trace(self) -> Job:
        rows = [*self._rows]
        place = self._rng.randrange(len(rows))
        rows[place] = self._changed(rows[place])
        return self._replay(self._written("t.jsonl", "\n".join(map(json.dumps, rows)).encode()))

    def _table(self) -> Job:
        rows = [["Received", "Prompt", "Completion", "Status"]]
        rows += [[f"2026-11-20 09:00:{i:02}", f"{100 + i}", f"{9 + i}", "200"] for i in range(50)]
        for _ in range(self._rng.choice((1, 1, 3))):
            row = self._rng.choice(rows)
            row[self._rng.randrange(4)] = str(self._rng.choice(ODD))
        return self._replay(self._written("t.csv", "\n".join(map(",".join, rows)).encode()))

    def _replay(self, path: Path) -> Job:
        commands: tuple[tuple[object, ...], ...] = (
            ("replay", path, *SERVER, "--replications", 0),
            ("workload", "stats", path),
            ("workload", "convert", path, "out.jsonl", "--overwrite"),
        )
        return self._rng.choice(commands), path

    def _run(self) -> Job:
        shutil.rmtree(self.folder / "odd", ignore_errors=True)
        shutil.copytree(self.folder / "run", self.folder / "odd")
        path = self._rng.choice([*(self.folder / "odd").iterdir()])
        if path.suffix == ".parquet" and self._rng.random() < 0.6:
            frame = pd.read_parquet(path)
            name = self._rng.choice([*frame.columns])
            odd = self._rng.choice((None, "x", -1.0, 1e308, float("nan")))
            changed = self._rng.choice((frame.drop(columns=name), frame.assign(**{name: odd})))
            changed.to_parquet(path, index=False)
        elif path.suffix == ".parquet":
            path.write_bytes(self._damaged(path.read_bytes()))
        else:
            value = yaml.safe_load(path.read_text())
            self._written(f"odd/{path.name}", json.dumps(self._changed(value)).encode())
        commands = (
            ("report", "odd", "--overwrite"), ("explain", "odd", "--slowest", 2),
            ("compare", "run", "odd"), ("compare", "odd", "run"),
        )  # fmt: skip
        return self._rng.choice(commands), path

    def _profile_file(self) -> Job:
        path = self._written("p.json", json.dumps(self._changed(self._profile)).encode())
        return ("replay", SAMPLE, "--limit", 20, "--replications", 3, "--profile", path), path

    def _scenario(self) -> Job:
        value = {
            "workload": {"requests": 40, "rate_per_s": 5, "prompt_mean": 100},
            "policies": {"max_seqs": 8, "batching": "continuous"}, "cluster": {"replicas": 2},
        }  # fmt: skip
        path = self._written("s.yaml", json.dumps(self._changed(value)).encode())
        return ("replay", "--scenario", path, "--limit", 20, "--replications", 0), path

    def _changed(self, value: Any) -> Any:
        """Return a JSON value with one to three places changed, taken out or added to."""
        value = copy.deepcopy(value)
        for _ in range(self._rng.choice((1, 1, 3))):
            places = [*_places(value)]
            if not places:
                return self._odd()
            inside, key = self._rng.choice(places)
            if self._rng.random() < 0.8:
                inside[key] = self._odd()
            elif isinstance(inside, dict):
                inside[self._rng.choice((str(key) + "s", "kind", "🙂"))] = inside.pop(key)
            else:
                inside.append(self._odd())
        return value

    def _odd(self) -> Any:
        return copy.deepcopy(self._rng.choice(ODD))  # A later change must not reach the next file.

    def _written(self, name: str, data: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(self._damaged(data) if self._rng.random() < 0.2 else data)
        return path

    def _damaged(self, data: bytes) -> bytes:
        """Return bytes that are cut, overwritten here and there, or in another encoding."""
        ways: tuple[Callable[[], bytes], ...] = (
            lambda: data[: self._rng.randrange(len(data) + 1)],
            lambda: data.replace(b"\n", b"\r"),
            lambda: data.decode(errors="replace").encode("utf-16"),
            lambda: bytes(self._rng.choice((b, b, b, b, b, b, b, b, 0, 255, 34)) for b in data),
        )
        return self._rng.choice(ways)()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in value if isinstance(value, dict) else range(min(len(value), 6)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ForkedCommands, Path]]:
    folder = tmp_path_factory.mktemp("here")
    with forked_commands(folder) as commands:
        done = commands.run(
            ("replay", SAMPLE, *SERVER, "--limit", 60, "--replications", 0, "--out", folder / "run")
        )
        assert done.code == 0, done.err
        yield commands, folder


def wrong(done: Outcome) -> bool:
    """Return whether an outcome is none that a user may meet."""
    one_line = done.code == 0 or len(done.err.splitlines()) == 1
    return done.code < 0 or done.code == OUR_FAULT or done.cpu_s > MOST_S or not one_line


def test_what_nobody_drew_before_is_taken_or_is_one_line(
    forked: tuple[ForkedCommands, Path],
) -> None:
    commands, folder = forked
    seed = time.time_ns() % 2**32
    outside = Outside(folder, seed)
    codes: dict[int, int] = {}
    until_s = time.monotonic() + LASTS_S
    while time.monotonic() < until_s:
        arguments, path = outside.job()
        done = commands.run(arguments)
        assert not wrong(done), (f"seed {seed}", arguments, path, done)
        codes[done.code] = codes.get(done.code, 0) + 1
    assert codes.get(0, 0) > 5, "some are taken"
    assert codes.get(2, 0) > 20, "most are not"
