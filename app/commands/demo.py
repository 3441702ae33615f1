"""``servetwin demo``: the whole loop on this machine, in under three minutes."""

from pathlib import Path
from typing import Annotated

from typer import Option

from servetwin.app.commands.verify import VerifyTask, finish, verify_policies
from servetwin.app.reports.progress import report_progress
from servetwin.app.scenario.options.common import Json, Overwriting, Seed
from servetwin.app.scenario.options.engine import EngineChoice, require_engine
from servetwin.app.scenario.options.groups import takes_options
from servetwin.app.scenario.options.trace import TraceOptions
from servetwin.app.scenario.settings import policies_named

POLICIES = ("static+contiguous", "continuous+paged")
MODEL = "small"
REQUESTS = 100
MINUTES, ROUNDS = 0.5, 2
NEXT = (
    "next: servetwin dashboard",
    "      servetwin replay TRACE --batching static --kv contiguous",
    "      servetwin serve, and from another terminal: servetwin loadtest URL --trace TRACE",
)


@takes_options()
def demo(
    overwriting: Overwriting,
    out: Annotated[Path, Option(help="Folder for the run folders.")] = Path("runs/demo"),
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Serve, calibrate, predict, load-test and judge two policies on the bundled engine."""
    from servetwin.app.verdict.verification import Plan
    from servetwin.policies.config import PolicyConfig

    require_engine()
    base = PolicyConfig(kv_tokens=16_384, max_model_len=1_024)
    configs = [policies_named(label, base, "POLICIES") for label in POLICIES]
    trace = TraceOptions(limit=REQUESTS).read_or_sample()
    plan = Plan(minutes=MINUTES, rounds=ROUNDS, seed=seed)
    with overwriting.claimed(out) as claim:
        report_progress("two policies on the bundled engine; two to four minutes")
        task = VerifyTask(trace, plan, claim.begin())
        found = verify_policies(configs, EngineChoice(MODEL, seed=seed), task)
        try:
            finish(found, out, json)
        finally:
            for line in NEXT:
                report_progress(line)
