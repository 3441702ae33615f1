"""Servers whose step times are tables: of a model's operators, phases, layers or kernels."""

from collections.abc import Callable
from dataclasses import replace

from servetwin.app.scenario.deployments import quantisation_of
from servetwin.app.scenario.options.tables import TableOptions
from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.catalogue.hardware import Link
from servetwin.sim.catalogue.layout import Layout
from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.catalogue.servers import ServerSettings
from servetwin.sim.experiments.scenario import ClusterConfig, Scenario
from servetwin.sim.step_times.profile import ApiLatencyFit
from servetwin.sim.step_times.roofline.formats import ACTIVATION_BYTES
from servetwin.sim.step_times.roofline.server import unlimited_policies
from servetwin.sim.step_times.tables import (
    KernelTable,
    LayerTable,
    LoadedTable,
    Table,
    TableProfile,
)
from servetwin.sim.step_times.tables.server_overheads import (
    FITTED,
    ServerOverheads,
    parse_overheads,
)
from servetwin.sim.techniques.setup import Setup
from servetwin.workloads.errors import PolicyError, ProfileError


def best_tables(
    options: TableOptions,
    setup: Setup,
    server: ServerSettings | None,
    require_expressed: Callable[[str], None],
) -> TableOptions:
    """Return the options with the best evidence, where none is chosen.

    That is kernel tables with the overheads of the backend (without a server, vLLM's), where they
    have model and device, and express all that was given. Raises ``PolicyError`` where chosen
    tables do not express it.
    """
    if options.times is not None:
        if options.given:
            require_expressed(options.given)
        return options
    kernels = replace(options, times="kernels", overheads=None if server else FITTED)
    try:
        _kernels(kernels, setup, server)
        require_expressed("kernels")
    except (ProfileError, PolicyError):
        return replace(options, times="sheet")
    return kernels


def table_server(
    options: TableOptions, setup: Setup, link: Link | None, serving: ServerSettings | None = None
) -> Scenario:
    """Return the scenario of a setup with the step times of the table."""
    if setup.deployment.parallel.groups > 1:  # no table knows an even spread
        setup = setup.with_layout(setup.deployment.parallel.layout)
    scenario, deployment = setup.scenario(), setup.deployment
    device, parallel = deployment.hardware.name, deployment.parallel
    if options.kind == "layers":
        link = parallel.link or link
        name, table = _layers(options, deployment.model, parallel.layout, link, serving)
    elif options.kind == "kernels":
        name, table = _kernels(options, setup, serving)
    elif options.kind == "operators":
        from servetwin.sim.step_times.tables.published_tables import OperatorTable

        name = options.files[0].parent.name or "operators"
        table = OperatorTable.read(
            *options.files,
            layers=deployment.model.layer_count,
            tensor_parallel=parallel.tensor,
            overhead_s=deployment.efficiency.overhead_s,
            where=options.rows(),
        )
    else:
        name, table = _phases(options, parallel.tensor)
    overheads = _overheads(options, serving)
    server = TableProfile(
        name, table, scenario.policies, deployment.kv_bytes_per_token(),
        overheads.api() if overheads else setup.api, device, parallel.devices,
    )  # fmt: skip
    return Scenario(scenario.policies, server, scenario.cluster)


def layer_server(
    options: TableOptions, model_name: str, link: Link | None, layout: Layout | None = None
) -> Scenario:
    """Return a scenario of layer times alone: no device says how large its KV memory is."""
    model, overheads = find_model(model_name), _overheads(options, None)
    name, table = _layers(options, model, layout, link, None)
    policies = unlimited_policies(model.max_model_len)
    kv_bytes = model.kv_elements_per_token() * ACTIVATION_BYTES
    api = overheads.api() if overheads else ApiLatencyFit()
    server = TableProfile(name, table, policies, kv_bytes, api)
    return Scenario(policies, server, ClusterConfig.of(layout or Layout(), model))


def _overheads(options: TableOptions, serving: ServerSettings | None) -> ServerOverheads | None:
    """Return what the server adds to kernels or layers: given, or as fitted for its backend."""
    if options.overheads is not None:
        return parse_overheads(options.overheads, *_backend(options, serving))
    if serving is None or options.kind != "kernels":
        return None
    try:
        return parse_overheads(FITTED, *_backend(options, serving))
    except ProfileError:
        return None


def _backend(
    options: TableOptions, serving: ServerSettings | None
) -> tuple[str | None, str | None]:
    """Return the backend and the version of its server; without a server, vLLM for kernels.

    Raises ``PolicyError`` for two backends.
    """
    if serving is None:
        return options.backend or ("vllm" if options.kind == "kernels" else None), None
    if options.backend not in (None, serving.backend):
        raise PolicyError(
            f"--times kernels:{options.backend}: --server is {serving.backend}; keep one of them"
        )
    return serving.backend, serving.version


def _loaded(table: KernelTable | LayerTable, overheads: ServerOverheads | None) -> Table:
    return table if overheads is None else LoadedTable(table, overheads)


def _layers(
    options: TableOptions,
    model: ModelShape,
    layout: Layout | None,
    link: Link | None,
    serving: ServerSettings | None,
) -> tuple[str, Table]:
    from servetwin.sim.step_times.tables.layer_bundle import read_layer_bundle

    times = read_layer_bundle(options.files[0], layout, linked=link is not None)
    layout = layout if layout and model.experts() else Layout(times.ranks)
    if layout.stage_devices > 1 and link is None:
        raise PolicyError(
            f"--link: layer times of {layout.stage_devices} ranks hold no messages between them; "
            "give their --link, or its latency and bandwidth, --link-us and --link-gb-per-s"
        )
    table = LayerTable(times, model, link, 1.0, layout, options.imbalance)
    return times.name, _loaded(table, _overheads(options, serving))


def _kernels(
    options: TableOptions, setup: Setup, serving: ServerSettings | None
) -> tuple[str, Table]:
    from servetwin.sim.step_times.tables.kernel_library import open_kernels

    deployment = setup.deployment
    device, model = deployment.hardware.name, deployment.model.name
    backend, version = _backend(options, serving)
    assert backend is not None
    table = open_kernels(
        model, device, backend, deployment.parallel.layout, quantisation_of(setup), version
    )
    return f"{model} on {device}, {backend}", _loaded(table, _overheads(options, serving))


def _phases(options: TableOptions, ranks: int) -> tuple[str, Table]:
    from servetwin.sim.step_times.tables.published_tables import PhaseTable

    (path,) = options.files
    where = options.rows()
    if unknown := where.keys() - {"model", "hardware"}:
        raise PolicyError(f"--where: {min(unknown)!r}; a phase table has model, hardware")
    table = PhaseTable.read(
        path,
        model=where.get("model"),
        hardware=where.get("hardware"),
        tensor_parallel=ranks if ranks > 1 else None,
    )
    return path.stem, table
