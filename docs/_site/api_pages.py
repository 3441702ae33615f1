"""The pages of the Python API: which names they have, in the order in which a reader needs them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from textwrap import fill

_LINE = 76
"""Letters in a line of code on a page."""


@dataclass(frozen=True, slots=True)
class ApiPage:
    """A page: its title, what it is for, and its names below headings."""

    title: str
    about: str
    groups: Mapping[str, tuple[str, ...]]

    def names(self) -> Iterator[str]:
        """Yield the dotted names of the page."""
        for names in self.groups.values():
            yield from names

    def markdown(self) -> str:
        """Return the page; mkdocstrings reads the names from the sources."""
        sections = (
            "\n\n".join([f"## {heading}", _imports(names), *(f"::: {name}" for name in names)])
            for heading, names in self.groups.items()
        )
        return "\n\n".join([f"# {self.title}", self.about, *sections]) + "\n"


def _imports(names: Iterable[str]) -> str:
    """Return the lines that import names, as a block of code."""
    by_module = groupby(names, key=lambda name: name.rpartition(".")[0])
    lines = (_import(module, [name.rpartition(".")[2] for name in of]) for module, of in by_module)
    return "\n".join(["```python", *lines, "```"])


def _import(module: str, names: Iterable[str]) -> str:
    listed = ", ".join(names)
    line = f"from {module} import {listed}"
    if len(line) <= _LINE:
        return line
    indented = fill(listed, _LINE, initial_indent="    ", subsequent_indent="    ")
    return f"from {module} import (\n{indented},\n)"


def _of(module: str, *names: str) -> tuple[str, ...]:
    return tuple(f"servetwin.{module}.{name}" for name in names)


SIM = ApiPage(
    "Simulator",
    "What would happen: a trace through the policies, on a model of step times. [Your own policy]"
    "(../../guides/own-policy.md#from-python) has a first example, the [model](../../model.md) what"
    " is simulated.",
    {
        "Simulate": _of("sim", "simulate", "Run", "load_run", "summarize", "SLO"),
        "Step times": _of(
            "sim", "load_profile", "Profile", "StepTime", "LinearStepTime", "ApiLatency"
        ),
        "Predict with intervals": (
            *_of("sim", "predict", "predict_once", "Prediction", "Interval"),
            *_of("sim.experiments.scenario", "Scenario", "ClusterConfig", "replicate"),
        ),
        "Compare two policies": _of(
            "sim.experiments.paired_comparison",
            "compare",
            "RunComparison",
            "MetricDifference",
        ),
        "Capacity within an SLO": _of(
            "sim.experiments.capacity", "find_capacity", "Capacity", "SLOTarget"
        ),
        "Grids": (
            *_of("sim.experiments.sweep", "simulate_point", "GridConditions", "GridPoint"),
            "servetwin.sim.experiments.parallel_map.map_on_processes",
        ),
        "Explain a request": _of("sim.explain", "Explainer", "Explanation", "PARTS"),
        "Techniques": (
            *_of("sim.techniques.registry", "find_technique", "apply_all"),
            "servetwin.sim.techniques.technique.Technique",
        ),
    },
)
POLICIES = ApiPage(
    "Policies",
    "What a server decides, without a clock and without torch. The [reference of plug-ins]"
    "(../plug-ins.md) lists what is registered, [your own policy](../../guides/own-policy.md) shows"
    " how to add to it.",
    {
        "Build a scheduler": _of("policies", "PolicyConfig", "build_scheduler"),
        "Interfaces": (
            *_of("policies", "Scheduler", "KVMemory", "KVUsage", "Refusal"),
            "servetwin.policies.protocols.Router",
            "servetwin.policies.prefix.eviction.EvictionOrder",
        ),
        "Sequences and batches": _of(
            "policies", "Sequence", "Batch", "ScheduledSequence", "BatchShape"
        ),
        "Schedulers to derive from": (
            "servetwin.policies.schedulers.continuous.ContinuousBatching",
            "servetwin.policies.schedulers.static.StaticBatching",
            "servetwin.policies.schedulers.iteration_level.ChunkedPrefill",
            "servetwin.policies.schedulers.iteration_level.IterationBatching",
        ),
        "Queues": (
            "servetwin.policies.protocols.WaitingQueue",
            "servetwin.policies.schedulers.waiting_queue.RankedQueue",
        ),
    },
)
WORKLOADS = ApiPage(
    "Workloads",
    "What clients ask: requests, traces, and what reads, makes and describes them"
    " ([formats and fields](../../workloads.md)).",
    {
        "Requests and traces": _of("workloads", "Request", "Trace"),
        "Read and write": (
            "servetwin.workloads.reading.read_trace",
            "servetwin.workloads.readers.native.write_trace",
            "servetwin.workloads.reading.sample_trace",
            "servetwin.workloads.readers.registry.Reader",
        ),
        "Make a workload": (
            *_of("workloads.generators.generate", "generate", "WorkloadSpec"),
            *_of("workloads.generators.generate", "generate_closed_loop", "ClosedLoopSpec"),
            *_of(
                "workloads.generators.conversations",
                "generate_conversations",
                "ConversationSpec",
            ),
            *_of("workloads.generators.arrivals", "ArrivalProcess", "ConstantArrivals"),
            *_of("workloads.generators.arrivals", "PoissonArrivals", "GammaArrivals"),
            *_of("workloads.generators.lengths", "LengthDistribution", "IndependentLengths"),
            *_of("workloads.generators.lengths", "FixedTokens", "LognormalTokens"),
        ),
        "Describe a trace": _of("workloads.statistics", "statistics", "prefix_statistics"),
        "Errors": _of("workloads", "ServetwinError", "TraceError"),
    },
)
LOADTEST = ApiPage(
    "Load tester",
    "What clients see: a trace sent to a live endpoint at its own times"
    " ([how](../../load-testing.md)).",
    {
        "Run a load test": (
            *_of("loadtest.run.client", "run_load_test", "LoadOptions", "load_scenario"),
            *_of("loadtest.run.client", "Progress", "OnProgress"),
        ),
        "Endpoints": _of(
            "loadtest.endpoint", "probe", "Endpoint", "Api", "Prompt", "client_settings"
        ),
        "Report and compare": (
            "servetwin.loadtest.report.report.render_report",
            *_of("loadtest.report.comparison", "compare", "Comparison", "MetricComparison"),
        ),
        "Find the knee": (
            "servetwin.loadtest.sweep.run_sweep.run_sweep",
            *_of("loadtest.sweep.sweep", "Sweep", "SweepSettings"),
            *_of("loadtest.sweep.knee", "find_knee", "Knee"),
        ),
        "Runs that others recorded": (
            "servetwin.loadtest.recorded.reading.read_recording",
            *_of("loadtest.recorded.recorded_run", "load_recorded_run", "RecordedRun"),
        ),
        "Read a stream of tokens": _of(
            "loadtest.stream.stream_reader", "StreamReader", "TokenStream", "read_stream"
        ),
        "A mock endpoint": (
            *_of("loadtest.mock.server", "serve_mock", "MockServer"),
            "servetwin.loadtest.mock.plan.MockPlan",
            "servetwin.loadtest.mock.stream_faults.FAULTS",
        ),
    },
)
SHAPES = ApiPage(
    "Models and devices",
    "Shapes of models and data sheets of devices, from the [catalogues](../../catalogues.md) or of"
    " your own.",
    {
        "Catalogues": _of(
            "sim.catalogue", "find_model", "shipped_models", "find_hardware", "shipped_hardware"
        ),
        "Devices": _of("sim.catalogue", "Hardware", "Precision"),
        "Models": _of("sim.catalogue", "ModelShape", "LayerGroup", "model_from_hf_config"),
        "Layers": _of(
            "sim.catalogue", "Mixer", "Attention", "LatentAttention", "Recurrence",
            "FeedForward", "Dense", "Experts",
        ),
    },
)  # fmt: skip
TABLES = ApiPage(
    "Table step times",
    "Step times from tables of measured times, by interpolation ([table profiles]"
    "(../../table-profiles.md)).",
    {
        "Tables": _of(
            "sim.step_times.tables", "Table", "PhaseTable", "OperatorTable", "OperatorTimes",
            "KernelTable", "LayerTable", "LoadedTable",
        ),
        "Layers of other simulators": _of(
            "sim.step_times.tables", "LayerTimes", "read_layer_bundle"
        ),
        "Interpolation and its error": _of(
            "sim.step_times.tables", "Curve", "Surface", "HeldOutError", "held_out_error"
        ),
        "Profiles": _of(
            "sim.step_times.tables", "TableProfile", "TableFit", "EfficiencyFit", "fit_efficiency"
        ),
    },
)  # fmt: skip
THEORY = ApiPage(
    "Queueing theory",
    "Exact results for simple servers, which the simulator must meet where its settings degenerate"
    " to them (`servetwin selftest`, [simulation practice](../../simulation-practice.md)).",
    {
        "One server": _of(
            "sim.theory.queues", "mm1_sojourn_s", "mm1_sojourn_quantile_s",
            "mm1_wait_relative_error", "md1_wait_s", "mg1_wait_s", "processor_sharing_sojourn_s",
        ),
        "Many servers": _of(
            "sim.theory.queues", "erlang_b", "erlang_c", "mmc_wait_s", "mmc_wait_quantile_s",
            "mg_infinity_probability", "mg_infinity_quantile", "kaufman_roberts",
        ),
        "Priorities": _of("sim.theory.queues", "PriorityClass", "priority_waits_s", "sjf_waits_s"),
        "Batches": _of(
            "sim.theory.batches", "BatchQueue", "batch_service", "batch_service_bounds_s",
            "bounded_batch_service", "gated_idle_probability", "gated_mean_in_system",
            "gated_sojourn_s", "mean_longest", "static_batch_makespan_s",
            "uniform_slot_efficiency", "uniform_slot_efficiency_limit",
            "geometric_slot_efficiency", "exponential_slot_efficiency", "sampled_slot_efficiency",
        ),
        "KV memory": _of(
            "sim.theory.serving", "RegionUse", "region_use", "sampled_region_use",
            "mean_paged_waste_tokens", "sampled_paged_waste_tokens", "ForkedBlocks",
            "copy_on_write",
        ),
        "Closed loops and networks": _of(
            "sim.theory.queues", "ClosedLoop", "closed_loop", "closed_loop_throughput_bound_per_s",
            "tandem_sojourn_s", "littles_law_gap", "number_integral_s",
        ),
        "Several devices": _of(
            "sim.theory.serving", "prefill_ttft_s", "tensor_parallel_prefill_ttft_s",
            "pipelined_prefill_ttft_s", "pipeline_first_token_s", "pipeline_token_interval_s",
            "pipeline_makespan_s", "pipeline_bubble", "pipeline_utilisation", "kv_transfer_s",
            "goodput_per_device_per_s",
        ),
        "Errors": _of("sim.theory.queues", "TheoryError"),
    },
)  # fmt: skip

API_PAGES: Mapping[str, ApiPage] = {
    "sim": SIM,
    "policies": POLICIES,
    "workloads": WORKLOADS,
    "loadtest": LOADTEST,
    "shapes": SHAPES,
    "tables": TABLES,
    "theory": THEORY,
}
"""The pages by the names of their files in ``reference/api``."""
