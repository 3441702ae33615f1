"""Old module names, importable for one version with a warning that names the new ones.

``OLD_MODULES`` maps a module of version 0.1 to its present name, ``OLD_CLASSES`` a class or
function of an old module to its present name in the new module.
"""

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

OLD_MODULES = {
    "policies.block_hashes": "policies.prefix.block_hashes",
    "policies.buddy": "policies.kv.buddy",
    "policies.chunked": "policies.schedulers.chunked",
    "policies.contiguous": "policies.kv.contiguous",
    "policies.continuous": "policies.schedulers.continuous",
    "policies.fleet": "policies.routers.replica_loads",
    "policies.host_memory": "policies.schedulers.preemption",
    "policies.host_tier": "policies.kv.host_tier",
    "policies.insertion": "policies.schedulers.insertion",
    "policies.iteration": "policies.schedulers.iteration_level",
    "policies.law_check": "policies.invariants",
    "policies.paged": "policies.kv.paged",
    "policies.prefill_first": "policies.schedulers.prefill_first",
    "policies.prefix_affinity": "policies.routers.prefix_affinity",
    "policies.prefix_index": "policies.prefix.prefix_index",
    "policies.prefix_tree": "policies.prefix.prefix_tree",
    "policies.queueing": "policies.schedulers.queueing",
    "policies.routing": "policies.routers.routing",
    "policies.speculative": "policies.schedulers.speculative",
    "policies.static": "policies.schedulers.static",
    "policies.victims": "policies.schedulers.preemption",
    "policies.windowed": "policies.kv.windowed",
    "sim.acceptance": "sim.step_times.acceptance",
    "sim.capacity": "sim.experiments.capacity",
    "sim.clients": "sim.core.clients",
    "sim.cluster": "sim.core.cluster",
    "sim.compare_runs": "sim.experiments.paired_comparison",
    "sim.crossing": "sim.experiments.bisection",
    "sim.deliveries": "sim.core.tick_queue",
    "sim.environment": "sim.core.environment",
    "sim.fidelity": "sim.experiments.decision_check",
    "sim.fit": "sim.step_times.fit",
    "sim.frontier": "sim.experiments.frontier",
    "sim.handover": "sim.core.kv_transfer",
    "sim.metrics": "sim.records.metrics",
    "sim.outside_fit": "sim.step_times.black_box_fit",
    "sim.outside_steps": "sim.step_times.black_box_steps",
    "sim.pools": "sim.core.pools",
    "sim.predict": "sim.experiments.predict",
    "sim.pressure": "sim.explain.bottleneck",
    "sim.profile": "sim.step_times.profile",
    "sim.provenance": "sim.step_times.provenance",
    "sim.queue_cause": "sim.explain.queue_cause",
    "sim.recorder": "sim.core.recorder",
    "sim.rejection_sampling": "sim.step_times.rejection_sampling",
    "sim.replica": "sim.core.replica",
    "sim.roofline": "sim.step_times.roofline",
    "sim.roofline.bounds": "sim.step_times.roofline.bounds",
    "sim.roofline.breakdown": "sim.step_times.roofline.breakdown",
    "sim.roofline.coarse": "sim.step_times.roofline.roofline_estimate",
    "sim.roofline.deployment": "sim.step_times.roofline.deployment",
    "sim.roofline.efficiency": "sim.step_times.roofline.efficiency",
    "sim.roofline.formats": "sim.step_times.roofline.formats",
    "sim.roofline.links": "sim.step_times.roofline.links",
    "sim.roofline.memory": "sim.step_times.roofline.memory",
    "sim.roofline.messages": "sim.step_times.roofline.messages",
    "sim.roofline.operators": "sim.step_times.roofline.operators",
    "sim.roofline.server": "sim.step_times.roofline.server",
    "sim.roofline.step_cost": "sim.step_times.roofline.step_cost",
    "sim.roofline.step_time": "sim.step_times.roofline.step_time",
    "sim.run": "sim.records.run",
    "sim.run_clock": "sim.core.run_clock",
    "sim.run_folder": "sim.records.run_folder",
    "sim.scenario": "sim.experiments.scenario",
    "sim.selftest": "sim.theory.selftest",
    "sim.selftest.batches": "sim.theory.selftest.batches",
    "sim.selftest.catalogue": "sim.theory.selftest.judge",
    "sim.selftest.judge": "sim.theory.selftest.judge",
    "sim.selftest.losses": "sim.theory.selftest.losses",
    "sim.selftest.many_servers": "sim.theory.selftest.many_servers",
    "sim.selftest.networks": "sim.theory.selftest.networks",
    "sim.selftest.orders": "sim.theory.selftest.single_server",
    "sim.selftest.scenario": "sim.theory.selftest.case",
    "sim.selftest.server": "sim.theory.selftest.case",
    "sim.selftest.single_server": "sim.theory.selftest.single_server",
    "sim.server_model": "sim.step_times.server_model",
    "sim.side_by_side": "sim.experiments.parallel_map",
    "sim.simulate": "sim.core.simulate",
    "sim.spans": "sim.explain.spans",
    "sim.stages": "sim.explain.stages",
    "sim.stalls": "sim.explain.stalls",
    "sim.step_rows": "sim.explain.step_rows",
    "sim.step_time": "sim.step_times.step_time",
    "sim.sweep": "sim.experiments.sweep",
    "sim.tables": "sim.step_times.tables",
    "sim.tables.efficiency_fit": "sim.step_times.tables.efficiency_fit",
    "sim.tables.held_out": "sim.step_times.tables.held_out",
    "sim.tables.interpolate": "sim.step_times.tables.interpolate",
    "sim.tables.measurements": "sim.step_times.tables.measurements",
    "sim.tables.operator_table": "sim.step_times.tables.operator_table",
    "sim.tables.phase_table": "sim.step_times.tables.phase_table",
    "sim.tables.table": "sim.step_times.tables.table",
    "sim.tables.table_profile": "sim.step_times.tables.table_profile",
    "sim.tables.table_source": "sim.step_times.tables.table_profile",
    "sim.timeline": "sim.explain.timeline",
    "sim.widened": "sim.step_times.extrapolation",
    "workloads.arrivals": "workloads.generators.arrivals",
    "workloads.chaining": "workloads.generators.chaining",
    "workloads.clients": "workloads.generators.clients",
    "workloads.closed_loop": "workloads.generators.closed_loop",
    "workloads.conversations": "workloads.generators.conversations",
    "workloads.generate": "workloads.generators.generate",
    "workloads.lengths": "workloads.generators.lengths",
    "workloads.modulated": "workloads.generators.modulated",
    "workloads.parents": "workloads.generators.parents",
    "workloads.pauses": "workloads.generators.pauses",
    "workloads.prefix_reuse": "workloads.statistics.prefix_reuse",
    "workloads.prefixes": "workloads.generators.prefixes",
    "workloads.prompts": "workloads.generators.prompts",
    "workloads.servegen": "workloads.generators.servegen",
    "workloads.servegen_files": "workloads.generators.servegen_files",
    "workloads.sessions": "workloads.generators.sessions",
}
OLD_CLASSES: dict[str, dict[str, str]] = {
    "workloads.lengths": {"LengthLaw": "LengthDistribution"},
    "workloads.pauses": {"PauseLaw": "PauseDistribution"},
    "policies.fleet": {"Fleet": "ReplicaLoads"},
    "policies.iteration": {"last_of_groups": "finished_requests"},
    "sim.selftest.catalogue": {
        "SCENARIOS": "CASES",
        "UnknownScenario": "UnknownCase",
        "scenarios_named": "cases_named",
    },
    "sim.selftest.judge": {"Outcome": "FigureCheck"},
    "sim.selftest.orders": {"ORDERS": "QUEUE_ORDERS"},
    "sim.selftest.scenario": {"Scenario": "SelftestCase"},
    "sim.roofline.coarse": {"CoarseStep": "RooflineEstimate"},
    "policies.law_check": {"LawBroken": "InvariantBroken", "LawChecked": "InvariantChecked"},
    "policies.queueing": {"Reception": "AdmissionQueue", "is_steady": "has_stable_head"},
    "sim.acceptance": {"Verification": "OrderedAcceptance"},
    "sim.capacity": {"Target": "SLOTarget", "Tried": "TriedRate"},
    "sim.crossing": {"Crossing": "RateBracket", "find_crossing": "bisect_rate"},
    "sim.deliveries": {"Deliveries": "TickQueue"},
    "sim.fidelity": {
        "Fidelity": "DecisionCheck",
        "RecordedTimes": "RecordedStepTimes",
        "WakesAsRecorded": "RecordedTimers",
        "check_fidelity": "check_decisions",
    },
    "sim.outside_fit": {"OutsideFit": "BlackBoxFit", "fit_outside": "fit_black_box"},
    "sim.outside_steps": {
        "Answer": "ObservedRequest",
        "Interval": "StepInterval",
        "SeenStep": "ObservedStep",
        "seen_steps": "observed_steps",
    },
    "sim.pressure": {"Pressure": "Bottleneck", "pressure": "find_bottleneck"},
    "sim.provenance": {"Rests": "RunProvenance", "rests_on": "run_provenance"},
    "sim.side_by_side": {"on_processes": "map_on_processes", "on_ray": "map_on_ray"},
    "sim.sweep": {"Conditions": "GridConditions", "Point": "GridPoint"},
    "sim.widened": {
        "Widened": "ExtrapolatedStepTime",
        "Widens": "ExtrapolatingSource",
        "draw_factor": "draw_extrapolation_factor",
    },
}


class OldModules(MetaPathFinder, Loader):
    """Finds a module by its old name and answers with the names of the new one."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for an old name, None for every other."""
        return ModuleSpec(name, self, is_package=True) if name in OLD_MODULES else None

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave the creation of the module to the import system."""

    def exec_module(self, module: ModuleType) -> None:
        """Forward every name of the old module to the new one."""
        old, new = module.__name__, importlib.import_module(OLD_MODULES[module.__name__])
        renamed = OLD_CLASSES.get(old, {})

        def forward(name: str) -> Any:
            found = getattr(new, renamed.get(name, name))
            if not name.startswith("__"):
                place = f"{new.__name__}.{renamed.get(name, name)}"
                warnings.warn(f"{old}.{name} is now {place}", DeprecationWarning, stacklevel=2)
            return found

        module.__getattr__ = forward  # type: ignore[method-assign]


def install() -> None:
    """Make the old names importable."""
    if not any(isinstance(finder, OldModules) for finder in sys.meta_path):
        sys.meta_path.append(OldModules())
