"""``servetwin workload``: stats, generate and convert, end to end."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from servetwin.app.cli import app
from servetwin.app.scenario.options.groups import OptionError
from servetwin.workloads.errors import TraceError
from servetwin.workloads.generators.named import NAMED
from servetwin.workloads.reading import read_trace
from servetwin.workloads.statistics.statistics import statistics
from servetwin.workloads.transform import limit, scale_rate, scale_tokens, window
from tests.support.command import refused
from tests.support.paths import SAMPLE

SAMPLE_OPTIONS = [
    "--arrivals", "gamma", "--prompt-tokens", "lognormal:max=512",
    "--output-tokens", "lognormal:max=96", "--prefix-groups", "8", "--seed", "1",
]  # fmt: skip


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["workload", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_generate_writes_the_sample(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    output = run("generate", "--out", out, *SAMPLE_OPTIONS)
    assert out.read_bytes() == SAMPLE.read_bytes()
    assert output.startswith(f"{out}: 240 requests, 53.1 s, 4.504 /s\n")


def test_generate_fixed_lengths(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    fixed = ("--prompt-tokens", 128, "--output-tokens", "fixed")
    run("generate", "--out", out, *fixed, "--requests", 3, "--arrivals", "constant")
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


@pytest.mark.parametrize("command", ["convert", "anonymise"])
def test_what_is_no_trace_is_not_written_over(command: str, tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("mine\n")
    assert "is no trace of ours; name another file" in refused("workload", command, SAMPLE, notes)
    assert notes.read_text() == "mine\n"
    for _ in range(2):
        run(command, SAMPLE, tmp_path / "made.jsonl")


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
        "dispersion      1.127 over 1 s, 0.939 over 10 s, - over 60 s, - over 300 s (1 = Poisson)",
    ]
    assert "ideal hits      40.6% of blocks, 42.9% of tokens (42.9% in full blocks)" in lines
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize(
    "arguments",
    [
        ["--arrivals", "constant"],
        ["--arrivals", "weibull:cv=2"],
        ["--arrivals", "mmpp2:on=2,off=3"],
        ["--diurnal", "--peak-trough", 4, "--period", 60],
        ["--arrivals", "gamma", "--hourly", "1,0,2", "--period", 30],
        ["--prompt-tokens", "uniform", "--output-tokens", "exponential"],
        ["--prompt-tokens", "exponential", "--output-tokens", "pareto"],
        ["--lengths-from", SAMPLE, "--jitter", 0.1],
        ["--reasoning", "deepseek-r1"],
        ["--structure", "shared-prefix", "--prefix-tokens", 32],
        ["--structure", "multi-turn", "--sessions", 12, "--context-limit", 900],
        ["--structure", "agentic", "--sessions", 2, "--block-tokens", 512],
        ["--closed-loop", 4, "--each", 3, "--think-time", "exponential:mean=5"],
    ],
    ids=lambda arguments: " ".join(map(str, arguments))[:40],
)
def test_generate_makes_every_kind_of_trace(tmp_path: Path, arguments: list[object]) -> None:
    out, again = tmp_path / "out.jsonl", tmp_path / "again.jsonl"
    if not {"--sessions", "--closed-loop"} & set(map(str, arguments)):
        arguments = ["--requests", 60, *arguments]
    printed = run("generate", "--out", out, "--seed", 4, *arguments)
    run("generate", "--out", again, "--seed", 4, *arguments)
    assert out.read_bytes() == again.read_bytes()
    assert max(map(len, printed.removeprefix(str(out)).splitlines())) <= 100
    lines = run("stats", out).splitlines()
    assert max(map(len, lines)) <= 100
    trace = read_trace(out)
    assert trace.requests[0].arrival_s >= 0
    if "--sessions" in arguments:
        assert len({r.session_id for r in trace}) == arguments[arguments.index("--sessions") + 1]
    else:
        assert len(trace) == (12 if "--closed-loop" in arguments else 60)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--arrivals", "poison"],
            "--arrivals: unknown arrival process 'poison'; did you mean 'poisson'?",
        ),
        (["--prompt-tokens", "normal"], "--prompt-tokens: unknown 'normal'; did you mean 'lognorm"),
        (["--output-tokens", "paret"], "--output-tokens: unknown 'paret'; did you mean 'pareto'?"),
        (["--structure", "agent"], "--structure: unknown 'agent'; did you mean 'agentic'?"),
        (["--closed-loop", 2, "--think-time", "exp"], "unknown 'exp'; known are exponential"),
        (["--hourly", "1,x"], "--hourly: wants numbers separated by commas, not '1,x'"),
        (["--closed-loop", 1, "--each", 0], "a trace has at least 1 request, not 0"),
        (["--rate", 0], "the rate must be a positive number, not 0"),
        (["--reasoning", "deepseek"], "--reasoning: unknown 'deepseek'; did you mean 'deepseek-r1"),
    ],
)
def test_generate_refuses_in_one_line(
    tmp_path: Path, arguments: list[object], message: str
) -> None:
    out = tmp_path / "x.jsonl"
    with pytest.raises(TraceError) as raised:
        run("generate", "--out", out, *arguments)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--structure", "multi-turn", "--requests", 9], "--requests: is of independent requests"),
        (["--closed-loop", 2, "--requests", 9], "--requests: is of independent requests"),
        (["--closed-loop", 2, "--rate", 9], "--rate: users of --closed-loop send after their an"),
        (["--closed-loop", 2, "--structure", "agentic"], "--closed-loop: its users hold no conv"),
        (["--sessions", 9], "--sessions: is of --structure multi-turn or agentic: give it too"),
        (["--sub-agents", 1], "--sub-agents: is of --structure multi-turn or agentic: give it to"),
        (["--each", 9], "--each: is of --closed-loop: give it too"),
        (["--think-time", 2], "--think-time: is of --closed-loop: give it too"),
        (["--prefix-tokens", 32], "--prefix-tokens: is of --structure shared-prefix: give it too"),
        (["--jitter", 0.1], "--jitter: is of --lengths-from: give it too"),
        (
            ["--lengths-from", SAMPLE, "--output-tokens", 9],
            "--output-tokens: the lengths are those of --lengths-from; leave it out",
        ),
        (
            ["--structure", "multi-turn", "--prompt-tokens", 9],
            "--prompt-tokens: conversations of this --structure have lengths of their own",
        ),
        (
            ["--structure", "agentic", "--output-tokens", 9],
            "--output-tokens: conversations of this --structure have lengths of their own",
        ),
    ],
    ids=lambda arguments: " ".join(map(str, arguments))[:40] if isinstance(arguments, list) else "",
)
def test_generate_refuses_an_option_that_its_load_does_not_read(
    tmp_path: Path, arguments: list[object], message: str
) -> None:
    with pytest.raises(OptionError) as raised:
        run("generate", "--out", tmp_path / "x.jsonl", *arguments)
    assert str(raised.value).startswith(message)


def test_stats_against_prints_the_pass_table(tmp_path: Path) -> None:
    lines = run("stats", SAMPLE, "--against", SAMPLE).splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[1].split() == [
        "prompt", "tokens", "111", "111", "0.000", "KS", "at", "most", "0.1", "pass",
    ]  # fmt: skip
    assert lines[-1].endswith("checks pass")
    other = tmp_path / "other.jsonl"
    run("generate", "--out", other, "--prompt-tokens", 128, "--seed", 3)
    result = CliRunner().invoke(app, ["workload", "stats", str(other), "--against", str(SAMPLE)])
    assert result.exit_code == 1
    assert "FAIL" in result.output
    assert "checks FAILED" in result.output.splitlines()[-1]


def test_resampled_wants_a_reference() -> None:
    line = refused("workload", "stats", SAMPLE, "--resampled")
    assert line == "servetwin: --resampled: is of --against: give it too"


def test_stats_against_as_json() -> None:
    printed = json.loads(run("stats", SAMPLE, "--against", SAMPLE, "--json"))
    assert printed["passes"] is True
    by_name = {check["name"]: check for check in printed["checks"]}
    assert by_name["rate /s"]["apart"] == 1
    assert by_name["dispersion over 60 s"]["passes"] is None


MEANS = {
    "chat": (1155, 211),
    "code-completion": (2048, 28),
    "batch-processing": (2579, 296),
    "evaluation": (730, 1),
    "rl-rollouts": (120, 400),
    "long-thinking": (1678, 1793),
}
"""As their sources have them, prompts and outputs."""


@pytest.mark.parametrize("name", NAMED)
def test_a_named_workload_has_the_lengths_and_the_rate_of_its_source(
    name: str, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    run("generate", "--out", out, "--named", name, "--requests", 20_000, "--seed", 3)
    trace = read_trace(out)
    prompt, output = MEANS[name]
    assert np.mean([r.prompt_tokens for r in trace]) == pytest.approx(prompt, rel=0.25)
    assert np.mean([r.output_tokens for r in trace]) == pytest.approx(output, rel=0.25)
    assert trace.rate_per_s == pytest.approx(float(NAMED[name].options["rate"]), rel=0.2)
    assert {r.samples for r in trace} == {64 if name == "rl-rollouts" else 1}
    assert NAMED[name].source in "".join(trace.notes)


def test_an_option_on_the_line_wins_over_the_named_workload(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    run("generate", "--named=rl-rollouts", "--out", out, "--samples", 2, "--rate", 1)
    trace = read_trace(out)
    assert (len(trace), {r.samples for r in trace}) == (16, {2})
    assert trace.span_s == pytest.approx(15)


def test_questions_of_an_evaluation_share_the_examples_of_their_subject(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    run("generate", "--out", out, "--named", "evaluation", "--requests", 2000)
    hit = statistics(read_trace(out))["prefix"]["hit_per_token"]
    assert 0.7 < hit < 608 / 730


def test_named_workloads_are_listed_with_their_sources() -> None:
    printed = run("named")
    assert max(map(len, printed.splitlines())) <= 100
    assert all(f"{name}: " in printed for name in NAMED)
    assert json.loads(run("named", "--json"))["chat"]["options"]["rate"] == "5.53"


def test_an_unknown_named_workload_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="did you mean 'evaluation'"):
        run("generate", "--out", tmp_path / "x.jsonl", "--named", "evalution")


def test_what_no_terminal_prints_is_escaped(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("a,prompt_tokens,b\x1b[2J\u2028c\n1,2\n")
    line = refused("workload", "stats", trace)
    assert line.isprintable()
    assert r"b\x1b[2J\u2028c" in line
