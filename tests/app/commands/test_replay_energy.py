"""``replay --energy``: one line, in the summary, and refused before the run."""

import json
from pathlib import Path

import pytest

from servetwin.workloads.readers.native import write_trace
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.command import refused, servetwin

SERVER = ("--model", "llama-3.1-8b", "--gpu", "h100", "--replications", "0")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    requests = (Request(f"r{i}", 2.0 * i, 100, 20) for i in range(5))
    write_trace(Trace(tuple(requests), "made"), path)
    return path


def test_one_line_says_joules_of_a_token_and_watts(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = servetwin("replay", trace, *SERVER, "--energy", "--out", out)
    assert done.code == 0, done.err
    (line,) = [line for line in done.out.splitlines() if line.startswith("energy ")]
    assert "J per output token [" in line
    assert " W [" in line
    assert "never measured" not in line
    energy = json.loads((out / "summary.json").read_text())["energy"]
    assert energy["joules_per_token"]["value"] * 100 == pytest.approx(energy["joules"])


def test_nothing_is_said_where_nothing_is_asked(trace: Path) -> None:
    done = servetwin("replay", trace, *SERVER, "--json")
    assert "energy" not in json.loads(done.out)


def test_a_kind_that_was_never_measured_is_named(trace: Path) -> None:
    server = ("--model", "qwen2.5-7b", "--gpu", "l40s", "--replications", "0")
    done = servetwin("replay", trace, *server, "--energy")
    assert "; never measured: l40s, qwen2.5-7b" in done.out


def test_a_power_that_is_missing_is_named_before_the_run(trace: Path, tmp_path: Path) -> None:
    device = {
        "name": "mine", "peak_flops_per_s": {"bf16": 1e15}, "memory_bytes_per_s": 3e12,
        "memory_bytes": 8e10, "compute_units": 100, "link_bytes_per_s": 4e11,
        "host_link_bytes_per_s": 6e10, "source": "made",
    }  # fmt: skip
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(device))
    server = ("--model", "llama-3.1-8b", "--gpu", path, "--energy", "--replications", "0")
    assert "mine has no 'tdp_watts'" in refused("replay", trace, *server)
    path.write_text(json.dumps(device | {"tdp_watts": 500}))
    assert servetwin("replay", trace, *server).code == 0
    path.write_text(json.dumps(device | {"tdp_watts": -1}))
    assert "field 'tdp_watts' (watts): -1 is not possible" in refused("replay", trace, *server)


def test_a_profile_has_no_energy(trace: Path) -> None:
    said = refused("replay", trace, "--profile", "base-cpu", "--energy")
    assert "base-cpu has step times, but no bytes and FLOPs" in said
