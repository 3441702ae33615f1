"""``replay`` on public tables of step times: what it rests on, its errors, its refusals."""

import json
from pathlib import Path

import pytest

from servetwin.workloads.readers.native import write_trace
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.command import refused, servetwin
from tests.support.measured_tables import attention_frame, mlp_frame, noisy, phase_frame

SERVER = ("--model", "llama-2-7b", "--hardware", "a100-80gb")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    requests = (Request(f"r{i}", 0.2 * i, 100 + 7 * i, 20) for i in range(20))
    write_trace(Trace(tuple(requests), "made"), path)
    return path


@pytest.fixture
def operators(tmp_path: Path) -> tuple[Path, Path]:
    mlp, attention = tmp_path / "mlp.csv", tmp_path / "attention.csv"
    mlp_frame(noisy(0.02)).to_csv(mlp, index=False)
    attention_frame(noisy(0.02)).to_csv(attention, index=False)
    return mlp, attention


@pytest.fixture
def phases(tmp_path: Path) -> Path:
    path = tmp_path / "phases.csv"
    phase_frame(noisy(0.02)).to_csv(path, index=False)
    return path


def test_operators_are_replayed_with_their_held_out_errors(
    trace: Path, operators: tuple[Path, Path]
) -> None:
    done = servetwin(
        "replay", trace, *SERVER, "--times", f"operators:{operators[0]},{operators[1]}"
    )
    assert done.code == 0
    assert "table profile" in done.out
    assert "decode attention: " in done.out
    assert "held-out error" in done.out
    assert "rests on   measured by others" in done.out.splitlines()[-1]


def test_phases_are_replayed_and_say_what_they_rest_on(trace: Path, phases: Path) -> None:
    done = servetwin("replay", trace, *SERVER, "--times", f"phases:{phases}", "--json")
    found = json.loads(done.out)
    shares = found["provenance"]["shares"]
    assert set(shares) <= {"measured", "interpolated", "extrapolated"}
    assert sum(shares.values()) == pytest.approx(1)
    assert found["times"] == f"phases:{phases}"
    assert found["intervals"]["tpot_s.mean"]["p5"] < found["intervals"]["tpot_s.mean"]["p95"]


def test_beyond_the_table_a_warning_names_the_range(tmp_path: Path, phases: Path) -> None:
    path = tmp_path / "long.jsonl"
    write_trace(Trace((Request("long", 0.0, 50_000, 2000),), "made"), path)
    done = servetwin("replay", path, *SERVER, "--times", f"phases:{phases}")
    assert "of the simulated time lies outside the range of profile phases" in done.err
    assert "prompts of up to 50,000 tokens; known up to" in done.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--times", "operators:a.csv"), "'operators:a.csv' is none of kernels|layers:DIR|"),
        (("--times", "phase:a.csv"), "did you mean 'phases'?"),
        (("--times", "sheet", "--where", "x=1"), "--where: chooses rows of --times operators"),
        (("--times", "phases:nowhere.csv"), "nowhere.csv"),
        (("--times", "phases:nowhere.csv", "--where", "x=1"), "--where: 'x'"),
        (("--times", "phases:nowhere.csv", "--where", "x"), "'x' is not COLUMN=VALUE"),
    ],
)
def test_tables_that_cannot_be(trace: Path, options: tuple[str, ...], message: str) -> None:
    assert message in refused("replay", trace, *SERVER, *options)
