"""The demo: two policies on the bundled engine, forecast and judged."""

from servetwin.app.reports.progress import report_progress
from servetwin.app.scenario.options.engine import EngineChoice, require_engine
from servetwin.app.scenario.options.trace import TraceOptions
from servetwin.app.scenario.settings import policies_named
from servetwin.app.tasks.verify import VerifyTask, finish, verify_policies
from servetwin.app.verdict.verification import Plan
from servetwin.app.words import asset_table
from servetwin.policies.config import PolicyConfig
from servetwin.sim.records.run_claim import RunClaim

POLICIES = ("static+contiguous", "continuous+paged")
MODEL = "small"
REQUESTS = 80
ROUNDS, TESTS = 2, 4
NEXT = asset_table("words.yaml")["next"]


def run_demo(claim: RunClaim, seed: int, json: bool) -> None:
    """Verify the policies, keep both runs, and say what to try next."""
    require_engine()
    base = PolicyConfig(kv_tokens=16_384, max_model_len=1_024)
    configs = [policies_named(label, base, "POLICIES") for label in POLICIES]
    trace = TraceOptions(limit=REQUESTS).read_or_sample()
    report_progress("two policies on the bundled engine; about four minutes")
    folder = claim.begin()
    task = VerifyTask(trace, Plan(rounds=ROUNDS, repeats=TESTS, seed=seed), folder)
    verifications = verify_policies(configs, EngineChoice(MODEL, seed=seed), task)
    try:
        finish(verifications, folder, json)
    finally:
        report_progress(NEXT)
