"""``servetwin workload``: stats, generate and convert, end to end."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.commands.workload import workload_app
from workloads.errors import TraceError
from workloads.reading import read_trace
from workloads.statistics import statistics
from workloads.transform import limit, scale_rate, scale_tokens, window

SAMPLE = Path(__file__).parents[1] / "workloads" / "scenarios" / "sample.jsonl"
SAMPLE_OPTIONS = [
    "--arrivals", "gamma", "--cv", "1.2", "--prompt-max", "512", "--output-max", "96",
    "--prefix-groups", "8", "--seed", "1",
]  # fmt: skip


def run(*arguments: object) -> str:
    result = CliRunner().invoke(workload_app, list(map(str, arguments)), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_generate_writes_the_sample(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    output = run("generate", "--out", out, *SAMPLE_OPTIONS)
    assert out.read_bytes() == SAMPLE.read_bytes()
    assert output.startswith(f"{out}: 240 requests, 53.1 s, 4.504 /s\n")


def test_generate_fixed_lengths(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    run("generate", "--out", out, "--fixed", "--requests", 3, "--arrivals", "constant")
    trace = read_trace(out)
    assert [(r.arrival_s, r.prompt_tokens, r.output_tokens) for r in trace] == [
        (0.0, 128, 24),
        (0.25, 128, 24),
        (0.5, 128, 24),
    ]


def test_generate_lengths_from_a_trace(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl.gz"
    run("generate", "--out", out, "--lengths-from", SAMPLE, "--requests", 50)
    pairs = {(r.prompt_tokens, r.output_tokens) for r in read_trace(SAMPLE)}
    assert {(r.prompt_tokens, r.output_tokens) for r in read_trace(out)} <= pairs


def test_fixed_excludes_lengths_from(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="exclude each other"):
        run("generate", "--out", tmp_path / "x.jsonl", "--fixed", "--lengths-from", SAMPLE)


def test_convert_is_the_transforms_in_order(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    run(
        "convert", SAMPLE, out, "--start", 5, "--end", 30, "--limit", 40,
        "--prompt-scale", 0.5, "--output-scale", 0.25, "--rate-scale", 2,
    )  # fmt: skip
    trace = limit(window(read_trace(SAMPLE), 5, 30), 40)
    expected = scale_rate(scale_tokens(trace, prompt=0.5, output=0.25), 2)
    assert read_trace(out) == expected


def test_convert_skips_bad_rows_when_told(tmp_path: Path) -> None:
    bad, out = tmp_path / "bad.jsonl", tmp_path / "out.jsonl"
    bad.write_text(SAMPLE.read_text() + "nonsense\n")
    with pytest.raises(TraceError, match=":242: field 'row': not JSON"):
        run("convert", bad, out)
    assert not out.exists()
    assert "note: 1 bad row skipped" in run("convert", bad, out, "--max-bad-rows", 1)
    assert read_trace(out).requests == read_trace(SAMPLE).requests


def test_stats_as_json() -> None:
    trace = read_trace(SAMPLE)
    printed = json.loads(run("stats", SAMPLE, "--json"))
    assert printed == {
        "source": "generated",
        "clock_s": None,
        **statistics(trace),
        "notes": list(trace.notes),
    }


def test_stats_as_text_fits_the_terminal() -> None:
    lines = run("stats", SAMPLE).splitlines()
    assert lines[:4] == [
        "source          generated",
        "requests        240 in 53.1 s, 4.504 /s",
        "gaps            CV 1.092, local CV 1.092, ties 0.0%",
        "dispersion      0.939 over 10 s, - over 60 s (1 = Poisson)",
    ]
    assert "ideal hits      40.6% of blocks, 42.9% of tokens (42.9% in full blocks)" in lines
    assert max(map(len, lines)) <= 100
