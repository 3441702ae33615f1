"""Does a verdict depend on the seed of the forecast? Judge recorded load tests with other seeds.

``python -m tests.benchmarks.seeds runs/demo/continuous+paged`` takes the profile and the load tests
of a verification, makes the forecast again with 20 seeds, and prints the outcomes of each load.
All must be one outcome, or *cannot tell* for all but two.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from servetwin.app.verdict.claims import METRICS, Outcome, compare
from servetwin.app.verdict.forecast import FORECAST, PROFILE, level_folder
from servetwin.sim.experiments.predict import predict
from servetwin.sim.records.run import Run, load_run
from servetwin.sim.step_times.profile import Profile, load_profile
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.benchmarks.black_box import say


def sent(run: Run) -> Trace:
    """The requests of a load test."""
    columns = ["request_id", "scheduled_s", "prompt_tokens", "asked_output_tokens"]
    rows = run.requests[columns].sort_values("scheduled_s", kind="stable")
    return Trace(
        tuple(Request(str(i), float(s), int(p), int(o)) for i, s, p, o in rows.to_numpy()),
        "recorded",
    )


def outcome(profile: Profile, measured: list[Run], seed: int, replications: int) -> Outcome:
    """Forecast the load that was sent, and judge it by what was measured."""
    config = profile.policy_config()
    found = predict(sent(measured[0]), config, profile, seed=seed, replications=replications)
    intervals = {m: i for m in METRICS if (i := found.interval(m)) is not None}
    return compare(intervals, measured, requests=found.requests).outcome


def main(
    folders: Annotated[list[Path], typer.Argument(help="Folders of verifications.")],
    seeds: int = 20,
    replications: int = 200,
) -> None:
    """Print how often each outcome came, for each load of each verification."""
    for folder in folders:
        profile = load_profile(str(folder / PROFILE))
        for level in json.loads((folder / FORECAST).read_text())["levels"]:
            at = folder / level_folder(level["utilisation"])
            measured = [load_run(run) for run in sorted(at.glob("measured-*"))]
            found = Counter(outcome(profile, measured, seed, replications) for seed in range(seeds))
            say(f"{folder}, {100 * level['utilisation']:.0f} %: {dict(found)}")


if __name__ == "__main__":
    typer.run(main)
