"""A model on devices as its server runs it: layout, memory share, limits, formats."""

from collections.abc import Mapping
from dataclasses import replace

from servetwin.app.scenario.settings import with_settings
from servetwin.sim.catalogue.layout import Layout
from servetwin.sim.catalogue.quantisation import Quantisation
from servetwin.sim.catalogue.servers import ServerSettings
from servetwin.sim.catalogue.versions import version_numbers
from servetwin.sim.step_times.roofline.deployment import Adapters, Deployment
from servetwin.sim.step_times.roofline.efficiency import USUAL, Efficiency, served_efficiency
from servetwin.sim.step_times.roofline.formats import FORMATS
from servetwin.sim.step_times.roofline.step_memory import RUNTIME_BYTES, ServerMemory
from servetwin.sim.techniques.registry import Toggles
from servetwin.sim.techniques.setup import Setup, changed_fields
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.program.package import shipped_json

# The first version of vLLM whose engine is V1.
V1 = (0, 8)
# Bytes outside PyTorch on a device: since V1, and before; ``test_server_memory`` has the logs.
_VLLM_BYTES = {True: 1.01e9, False: 0.376e9}

# What a kind of tables knows of a setup.
_EXPRESSED: Mapping[str, list[str]] = shipped_json("app/scenario/expressed.json")
# The kinds of tables that an option changes: of efficiencies, the overhead of a step.
_KINDS_WITH = {"link": ("layers",), "efficiency": ("operators",)}
_BY_FORMAT = {"fp8": "fp8", "w8a8": "int8", "gptq": "w4a16", "awq": "w4a16", "int4": "w4a16"}


def as_served(setup: Setup, settings: ServerSettings | None, layout: Layout | None) -> Setup:
    """Return ``setup`` as a server runs it; policies given elsewhere still win.

    The server is of its name, command line or log; a ``layout`` wins over its own.
    """
    layout = layout or (settings.layout if settings else Layout())
    if settings is not None:
        setup = _served(setup, settings)
    return setup if layout == Layout() else setup.with_layout(layout)


def _served(setup: Setup, settings: ServerSettings) -> Setup:
    deployment, hardware = setup.deployment, setup.deployment.hardware
    size = hardware.reported_bytes or hardware.memory_bytes
    policies = settings.policy_settings(size, hardware.name)
    kv_tokens = policies.pop("kv_tokens", None)
    model = deployment.model
    if settings.formats:
        formats = {**model.quantisation.model_dump(), **settings.formats}
        update = {"quantisation": Quantisation.model_validate(formats)}
        model = model.model_copy(update=update)
    served = replace(
        setup,
        deployment=replace(
            deployment,
            model=model,
            memory=_memory(settings),
            efficiency=_efficiency(deployment, settings),
        ),
        policies=with_settings(setup.policies, policies),
        kv_tokens=kv_tokens,
    )
    if settings.adapters:
        served = served.with_adapters(Adapters(*settings.adapters))
    return served.with_cluster(replicas=settings.replicas) if settings.replicas > 1 else served


def _efficiency(deployment: Deployment, settings: ServerSettings) -> Efficiency:
    """Return what the server reaches on the device by published runs, unless it is given."""
    device = deployment.hardware.name
    if deployment.efficiency != served_efficiency(USUAL, device):
        return deployment.efficiency
    return served_efficiency(settings.backend, device, settings.version)


def _memory(settings: ServerSettings) -> ServerMemory:
    share, free_share = settings.memory()
    is_v1 = version_numbers(settings.version) >= V1
    runtime = {"vllm": _VLLM_BYTES[is_v1], "sglang": 0.0}
    return ServerMemory(
        share or 1.0, runtime.get(settings.backend, RUNTIME_BYTES), free_share or 1.0,
        is_reported=True, is_profiled=settings.backend == "vllm",
        holds_steps=settings.backend != "sglang",
    )  # fmt: skip


def require_expressed(
    setup: Setup, toggles: Toggles, options: Mapping[str, str | None], kind: str
) -> None:
    """Raise ``PolicyError`` for a technique or option of which tables of a kind know nothing."""
    known = tuple(_EXPRESSED["all"] + _EXPRESSED.get(kind, []))
    unknown = [f"--{name}" for name, of in _KINDS_WITH.items() if options[name] and kind not in of]
    if setup.deployment.adapters:
        unknown.append("--server with --enable-lora")
    for option, techniques in (("--technique", toggles.on), ("--without", toggles.off)):
        for technique in techniques:
            after = technique.apply(setup) if technique in toggles.on else technique.off(setup)
            changed = [name for name in changed_fields(setup, after) if not name.startswith(known)]
            if changed or not _has_known_formats(setup.deployment, after.deployment):
                unknown.append(f"{option} {technique.name}")
    if unknown:
        raise PolicyError(f"{unknown[0]}: tables of {kind} know nothing of it; take --times sheet")


def _has_known_formats(before: Deployment, after: Deployment) -> bool:
    """Return whether tables have the formats that a technique changes, in both phases alike."""
    form = after.decode
    same = (after.prefill, form) == (before.prefill, before.decode)
    known = form == after.prefill == FORMATS.get(form.name) and form.name in _BY_FORMAT
    return (same or known) and after.kv_element_bytes in (before.kv_element_bytes, 1.0)


def quantisation_of(setup: Setup) -> Quantisation:
    """Return the formats of a setup, by part: of the checkpoint, or of its techniques."""
    deployment = setup.deployment
    formats = deployment.model.quantisation.model_dump()
    if (form := _BY_FORMAT.get(deployment.decode.name)) is not None:
        formats |= {"gemm": form, "experts": form}
    if deployment.kv_element_bytes == 1.0:
        formats["kv"] = "fp8"
    return Quantisation.model_validate(formats)
