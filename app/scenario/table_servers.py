"""Servers whose step times are tables: of a model's operators, phases, layers or kernels."""

from servetwin.app.scenario.options.tables import TableOptions
from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.catalogue.hardware import Link
from servetwin.sim.catalogue.layout import Layout
from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.catalogue.quantisation import Quantisation
from servetwin.sim.experiments.scenario import ClusterConfig, Scenario
from servetwin.sim.step_times.profile import ApiLatencyFit
from servetwin.sim.step_times.roofline.formats import ACTIVATION_BYTES
from servetwin.sim.step_times.roofline.parallel import Parallel
from servetwin.sim.step_times.roofline.server import unlimited_policies
from servetwin.sim.step_times.tables import (
    KernelTable,
    LayerTable,
    LoadedTable,
    OperatorTable,
    PhaseTable,
    Table,
    TableProfile,
    read_layer_bundle,
)
from servetwin.sim.step_times.tables.server_overheads import ServerOverheads, parse_overheads
from servetwin.sim.techniques.setup import Setup
from servetwin.workloads.errors import PolicyError


def table_server(options: TableOptions, setup: Setup, link: Link | None) -> Scenario:
    """Return the scenario of a setup with the step times of the table."""
    if setup.deployment.parallel.groups > 1:  # no table knows an even spread
        setup = setup.with_layout(setup.deployment.parallel.layout)
    scenario, deployment = setup.scenario(), setup.deployment
    device, parallel = deployment.hardware.name, deployment.parallel
    if options.layers is not None:
        name, table = _layers(options, deployment.model, parallel.layout, link)
    elif options.kernels is not None:
        name, table = _kernels(options, deployment.model, parallel, device)
    elif options.operators is not None:
        name = options.operators[0].parent.name or "operators"
        table = OperatorTable.read(
            *options.operators,
            layers=deployment.model.layer_count,
            tensor_parallel=parallel.tensor,
            overhead_s=deployment.efficiency.overhead_s,
            where=options.rows(),
        )
    else:
        name, table = _phases(options, parallel.tensor)
    overheads = _overheads(options)
    server = TableProfile(
        name, table, scenario.policies, deployment.kv_bytes_per_token(),
        overheads.api() if overheads else setup.api, device, parallel.devices,
    )  # fmt: skip
    return Scenario(scenario.policies, server, scenario.cluster)


def layer_server(
    options: TableOptions, model_name: str, link: Link | None, layout: Layout | None = None
) -> Scenario:
    """Return a scenario of layer times alone: no device says how large its KV memory is."""
    model, overheads = find_model(model_name), _overheads(options)
    name, table = _layers(options, model, layout, link)
    policies = unlimited_policies(model.max_model_len)
    kv_bytes = model.kv_elements_per_token() * ACTIVATION_BYTES
    api = overheads.api() if overheads else ApiLatencyFit()
    server = TableProfile(name, table, policies, kv_bytes, api)
    return Scenario(policies, server, ClusterConfig.of(layout or Layout(), model))


def _overheads(options: TableOptions) -> ServerOverheads | None:
    """Return what the server adds to kernels or layers."""
    text = options.overheads
    return None if text is None else parse_overheads(text, options.kernels)


def _loaded(options: TableOptions, table: KernelTable | LayerTable) -> Table:
    overheads = _overheads(options)
    return table if overheads is None else LoadedTable(table, overheads)


def _layers(
    options: TableOptions, model: ModelShape, layout: Layout | None, link: Link | None
) -> tuple[str, Table]:
    assert options.layers is not None
    times = read_layer_bundle(options.layers, layout, linked=link is not None)
    layout = layout if layout and model.experts() else Layout(times.ranks)
    if layout.stage_devices > 1 and link is None:
        raise PolicyError(
            f"--link: layer times of {layout.stage_devices} ranks hold no messages between them; "
            "give their --link, or its latency and bandwidth, --link-us and --link-gb-per-s"
        )
    return times.name, _loaded(
        options, LayerTable(times, model, link, 1.0, layout, options.imbalance)
    )


def _kernels(
    options: TableOptions, model: ModelShape, parallel: Parallel, device: str
) -> tuple[str, Table]:
    from servetwin.sim.step_times.tables.kernel_library import open_kernels

    assert options.kernels is not None
    layout, formats = parallel.layout, Quantisation()
    table = open_kernels(model.name, device, options.kernels, layout, formats)
    return f"{model.name} on {device}, {options.kernels}", _loaded(options, table)


def _phases(options: TableOptions, ranks: int) -> tuple[str, Table]:
    assert options.phases is not None
    where = options.rows()
    if unknown := where.keys() - {"model", "hardware"}:
        raise PolicyError(f"--where: {min(unknown)!r}; a phase table has model, hardware")
    table = PhaseTable.read(
        options.phases,
        model=where.get("model"),
        hardware=where.get("hardware"),
        tensor_parallel=ranks if ranks > 1 else None,
    )
    return options.phases.stem, table
