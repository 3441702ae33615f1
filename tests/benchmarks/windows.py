"""How well the bundled engine is predicted on windows of real traces that no calibration has seen.

Each row of ``WINDOWS`` starts an engine, calibrates it, writes the forecasts of all loads, and then
load-tests it; every cell is printed, whatever it says, and none is measured twice::

    python -m tests.benchmarks.windows --out results/windows

The steps of ``--simulated PROFILE`` take the times of a profile instead of computing a model, on a
machine that cannot keep its speed.

Wanted: throughput within 2 %, mean TPOT within 3 %, mean and p90 TTFT within 5 % up to a load of
85 %; the capacity within 3 %, and latencies inside the predicted interval at 95 %.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from servetwin.app.calibration.step_log import StepLogCalibrator
from servetwin.app.scenario.options.engine import EngineChoice
from servetwin.app.scenario.settings import policies_named
from servetwin.app.verdict.claims import THROUGHPUT, MetricComparison
from servetwin.app.verdict.verification import Level, Plan, Verification
from servetwin.app.verdict.verifier import Verifier
from servetwin.policies.config import PolicyConfig
from servetwin.workloads.reading import read_trace
from servetwin.workloads.trace import Trace
from servetwin.workloads.transform import limit, scale_tokens, window
from tests.benchmarks.black_box import say
from tests.benchmarks.power import engine
from tests.benchmarks.simulator import CONVERSATION, MOONCAKE

CODE = CONVERSATION.with_name("AzureLLMInferenceTrace_code.csv.gz")
UTILISATIONS = (0.5, 0.7, 0.85, 0.95)
WANTED = {THROUGHPUT: 0.02, "tpot_s.mean": 0.03, "ttft_s.mean": 0.05, "ttft_s.p90": 0.05}


@dataclass(frozen=True, slots=True)
class Window:
    """Requests of ``path`` from ``start_s`` on, their tokens scaled for a small engine."""

    path: Path
    start_s: float
    prompt: float
    output: float

    def trace(self, requests: int) -> Trace:
        """Return the first requests of the window."""
        found = limit(window(read_trace(self.path), self.start_s), requests)
        return scale_tokens(found, prompt=self.prompt, output=self.output)


AZURE_CONVERSATION = Window(CONVERSATION, 2_400.0, 0.1, 0.1)
AZURE_CODE = Window(CODE, 2_400.0, 0.1, 0.5)
SHARED_PREFIXES = Window(MOONCAKE.with_name("arxiv_trace_window_93.jsonl"), 0.0, 1 / 32, 0.1)
"""Of its prompt tokens 37 % are cached; blocks of 512 tokens become blocks of 16."""
SMALL_MEMORY = PolicyConfig(kv_tokens=768, max_model_len=768)
"""Preemptions at every load."""
WINDOWS: Mapping[str, tuple[str, PolicyConfig, Window]] = {
    "conversation": ("continuous+paged", PolicyConfig(), AZURE_CONVERSATION),
    "code": ("chunked+paged", PolicyConfig(), AZURE_CODE),
    "conversation, prefill first": ("prefill-first+paged", PolicyConfig(), AZURE_CONVERSATION),
    "code, static": ("static+contiguous", PolicyConfig(), AZURE_CODE),
    "shared prefixes": ("chunked+paged+prefix", PolicyConfig(), SHARED_PREFIXES),
    "conversation, small memory": ("continuous+paged", SMALL_MEMORY, AZURE_CONVERSATION),
    "conversation, 96 sequences": (
        "continuous+paged", PolicyConfig(max_seqs=96), AZURE_CONVERSATION,
    ),
}  # fmt: skip
HEAD = ("window", "policies", "load", "throughput", "TPOT", "TTFT", "TTFT p90", "wanted", "verdict")


def rows(name: str, found: Verification) -> Iterator[list[str]]:
    """The cells of each load of a verification."""
    for level in found.levels:
        by_name = {row.metric: row for row in level.claims.comparison.metrics}
        yield [
            name, found.forecast.config.name, f"{100 * level.prediction.utilisation:.0f} %",
            *(percent(by_name[metric]) for metric in WANTED),
            "met" if is_met(by_name) else "missed",
            f"{level.claims.comparison.outcome} {'; '.join(level.claims.comparison.doubts)}",
        ]  # fmt: skip


def is_met(by_name: Mapping[str, MetricComparison]) -> bool:
    """Whether every error is within what is wanted."""
    for metric, limit_ in WANTED.items():
        row = by_name[metric]
        if row.error is None or row.predicted is None or row.measured is None:
            return False
        if abs(row.error) > limit_:
            return False
    return True


def percent(row: MetricComparison) -> str:
    """Error and its interval, per cent."""
    if row.error is None or row.error_low is None or row.error_high is None:
        return "-"
    low, high = 100 * row.error_low, 100 * row.error_high
    return f"{100 * row.error:+.1f} ({low:+.1f} to {high:+.1f})"


def counts(level: Level) -> str:
    """What makes a window special: prefix hits and preemptions, predicted and measured."""
    runs = [level.prediction.run.summary(), *(run.summary() for run in level.measured)]
    hits = [f"{100 * (one['prefix_hit_rate_tokens'] or 0):.0f}" for one in runs]
    pauses = [str(one["preemptions"]) for one in runs]
    return f"prefix hits {', '.join(hits)} %, preemptions {', '.join(pauses)}"


def main(
    requests: int = 100,
    rounds: int = 3,
    model: str = "small",
    simulated: Annotated[str | None, typer.Option(help="Profile of a simulated engine.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Names of windows.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the verifications.")] = None,
) -> None:
    """Measure the windows and print a row per cell."""
    say(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}")
    for name, (policies, base, chosen) in WINDOWS.items():
        if only and name not in only:
            continue
        began_s = time.monotonic()
        config = policies_named(policies, base, "--policy")
        plan = Plan(UTILISATIONS, rounds=rounds)
        with engine(config, EngineChoice(model), simulated) as live:
            calibrator = StepLogCalibrator(live)
            found = Verifier(calibrator, chosen.trace(requests), plan, lambda _: None).run()
        if out:
            found.save(out / name.replace(", ", "-").replace(" ", "-"))
        for cells in rows(name, found):
            say(f"| {' | '.join(cells)} |")
        decisions = found.decisions
        say(
            f"<!-- {time.monotonic() - began_s:.0f} s; {counts(found.levels[-1])}; "
            f"{decisions and decisions.agreeing} of {decisions and decisions.steps} steps agree -->"
        )


if __name__ == "__main__":
    typer.run(main)
