"""A digital twin of an LLM server: predict what a policy will do, then confirm it live.

The names of this package are the public API; each is imported when it is first used.
"""

import sys
from importlib import import_module
from os import environ
from pathlib import Path
from typing import TYPE_CHECKING

from servetwin.core_cache import PURE, CompiledCore

if TYPE_CHECKING:
    from servetwin.app.plan.plan import plan as plan
    from servetwin.app.reports.sweep import sweep as sweep
    from servetwin.app.scenario.files.scenario_file import Workload as Workload
    from servetwin.app.scenario.options.deployment import Deployment as Deployment
    from servetwin.engine.llm import LLM as LLM
    from servetwin.loadtest.endpoint import probe as probe
    from servetwin.loadtest.run.client import run_load_test as run_load_test
    from servetwin.policies.build import build_scheduler as build_scheduler
    from servetwin.policies.config import PolicyConfig as PolicyConfig
    from servetwin.policies.protocols import KVMemory as KVMemory
    from servetwin.policies.protocols import Scheduler as Scheduler
    from servetwin.sim.core.simulate import simulate as simulate
    from servetwin.sim.experiments.capacity import SLOTarget as SLOTarget
    from servetwin.sim.experiments.capacity import find_capacity as find_capacity
    from servetwin.sim.experiments.paired_comparison import compare as compare
    from servetwin.sim.experiments.predict import predict as predict
    from servetwin.sim.experiments.scenario import Scenario as Scenario
    from servetwin.sim.explain.explain import Explainer as Explainer
    from servetwin.sim.records.metrics import SLO as SLO
    from servetwin.sim.records.run import Run as Run
    from servetwin.sim.records.run import load_run as load_run
    from servetwin.sim.step_times.profile import load_profile as load_profile
    from servetwin.workloads.errors import ServetwinError as ServetwinError
    from servetwin.workloads.reading import read_trace
    from servetwin.workloads.reading import sample_trace as sample_trace
    from servetwin.workloads.request import Request as Request
    from servetwin.workloads.trace import Trace as Trace

    load_trace = read_trace

_HERE = Path(__file__).resolve().parent
if not (_HERE / "sim").is_dir():
    __path__.append(str(_HERE.parent))
    if not environ.get(PURE):
        sys.meta_path.insert(0, CompiledCore(_HERE.parent))

_PLACES = {
    "Deployment": "app.scenario.options.deployment:Deployment",
    "LLM": "engine.llm:LLM",
    "SLO": "sim.records.metrics:SLO",
    "Explainer": "sim.explain.explain:Explainer",
    "KVMemory": "policies.protocols:KVMemory",
    "PolicyConfig": "policies.config:PolicyConfig",
    "Request": "workloads.request:Request",
    "Run": "sim.records.run:Run",
    "SLOTarget": "sim.experiments.capacity:SLOTarget",
    "Scenario": "sim.experiments.scenario:Scenario",
    "Scheduler": "policies.protocols:Scheduler",
    "ServetwinError": "workloads.errors:ServetwinError",
    "Trace": "workloads.trace:Trace",
    "Workload": "app.scenario.files.scenario_file:Workload",
    "build_scheduler": "policies.build:build_scheduler",
    "compare": "sim.experiments.paired_comparison:compare",
    "find_capacity": "sim.experiments.capacity:find_capacity",
    "load_profile": "sim.step_times.profile:load_profile",
    "load_run": "sim.records.run:load_run",
    "load_trace": "workloads.reading:read_trace",
    "plan": "app.plan.plan:plan",
    "predict": "sim.experiments.predict:predict",
    "probe": "loadtest.endpoint:probe",
    "run_load_test": "loadtest.run.client:run_load_test",
    "sample_trace": "workloads.reading:sample_trace",
    "simulate": "sim.core.simulate:simulate",
    "sweep": "app.reports.sweep:sweep",
}
__all__ = sorted(_PLACES)


def __getattr__(name: str) -> object:
    """Import a public name; of another one, say in one line which is nearest."""
    if name in _PLACES:
        module, _, attribute = _PLACES[name].partition(":")
        globals()[name] = getattr(import_module(f"servetwin.{module}"), attribute)
        return globals()[name]
    if name == "__version__":
        return import_module("servetwin.workloads.program.package").own_version()
    folders = ("app", "engine", "loadtest", "policies", "sim", "workloads")
    imported = sys._getframe(1).f_globals.get("__name__") == "importlib._bootstrap"
    if name.startswith("_") or name in folders:
        raise AttributeError(name)
    from difflib import get_close_matches

    near = get_close_matches(name, __all__, 1, 0.0)[0]
    message = f"servetwin has no public name {name!r}; did you mean {near!r}?"
    raise ImportError(message) if imported else AttributeError(message)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
