"""Run techniques of the simulator on the bundled engine, or say why it cannot.

A technique changes fields of a ``Setup``. ``TRANSLATIONS`` has, by field, the function that makes
the engine do the same. A technique that changes a field without a translation is refused: the
engine would silently run without it. To make the engine run another technique, write the function
and name the fields that it answers for.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from servetwin.app.serving.models import drafts_of, model_of, shape_of
from servetwin.engine.kv.forgetting import cannot_forget
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.model_config import PRESETS, ModelConfig
from servetwin.engine.parallel.shards import shard_config
from servetwin.engine.serve_options import ServeOptions
from servetwin.policies.config import PolicyConfig
from servetwin.sim.catalogue.hardware import Hardware
from servetwin.sim.step_times.roofline.deployment import Deployment, Kernels
from servetwin.sim.step_times.roofline.formats import FORMATS, KV_FORMATS
from servetwin.sim.step_times.roofline.server import NEVER_FULL_TOKENS
from servetwin.sim.techniques.registry import TECHNIQUES, Toggles, find_technique
from servetwin.sim.techniques.setup import Setup, changed_fields
from servetwin.sim.techniques.technique import Technique
from servetwin.workloads.errors import EngineError, PolicyError, ServetwinError
from servetwin.workloads.program.package import shipped_json


def forgetting(
    model: ModelConfig, policies: PolicyConfig, computation: Computation
) -> PolicyConfig:
    """Return policies whose memory forgets what no layer sees any more.

    Where it cannot (a layer sees all, prefixes are shared), a window is a mask alone; sinks have
    their places in a cache that forgets, so there the reason comes from what cannot.
    """
    window = model.windows[0] if len(set(model.windows)) == 1 else None
    if window is None:
        return policies
    forgets = policies.kv == "paged" and not policies.prefix_cache
    if model.sink_tokens or (forgets and cannot_forget(model, computation) is None):
        total = window + model.sink_tokens
        return policies.changed(kv="grouped", kv_groups=f"kept:{total}")
    return policies


@dataclass(frozen=True, slots=True)
class EngineSetup:
    """What the bundled engine is started with, as far as techniques change it."""

    model: ModelConfig
    policies: PolicyConfig
    computation: Computation

    @classmethod
    def of(cls, options: ServeOptions) -> "EngineSetup":
        """Return that part of the options of an engine."""
        return cls(options.model_config(), options.policies, options.computation)

    def over(self, options: ServeOptions) -> ServeOptions:
        """Return ``options`` with this model, these policies and this computation."""
        model = options.model_config()
        shape = self.model if self.model != model else options.shape
        policies = self.policies
        if (self.model.windows, self.model.sink_tokens) != (model.windows, model.sink_tokens):
            policies = forgetting(self.model, policies, self.computation)
        return replace(options, shape=shape, policies=policies, computation=self.computation)


class CannotRun(EngineError):
    """A technique that the bundled engine does not run."""


# Return the engine with what the setup says in the fields of the translation.
# It raises ``PolicyError`` with the reason, and what would be right, for a value that the engine
# cannot honour.
Translation = Callable[[EngineSetup, Setup], EngineSetup]


def _policies(engine: EngineSetup, setup: Setup) -> EngineSetup:
    """Give the engine the same policies, on memory of the size that it had."""
    return replace(engine, policies=replace(setup.policies, kv_tokens=engine.policies.kv_tokens))


def _model(engine: EngineSetup, setup: Setup) -> EngineSetup:
    """Give the engine a model of the same shape, with random weights."""
    return replace(engine, model=model_of(setup.deployment.model, engine.model))


def _offload(engine: EngineSetup, setup: Setup) -> EngineSetup:
    """Change nothing where all lies on the device; else raise."""
    offload = setup.deployment.offload
    if offload.resident_weights < 1 or offload.resident_kv < 1:
        raise PolicyError(
            "all that a step reads lies in the memory of its device: a CPU has no second one, and "
            "on a GPU nothing is streamed in during a step (preemption: swap and "
            "host_cache_tokens move keys and values between steps)"
        )
    return engine


def _weight_sharing(engine: EngineSetup, setup: Setup) -> EngineSetup:
    """Give neighbouring layers of the engine's model one set of weights."""
    shared = setup.deployment.weight_sharing
    return replace(engine, model=replace(engine.model, weight_sharing=shared))


def _prediction_only(engine: EngineSetup, setup: Setup) -> EngineSetup:
    """Change nothing: the field says what a formula expects, which the engine shows by itself."""
    del setup
    return engine


def _drafts(engine: EngineSetup, setup: Setup) -> EngineSetup:
    """Give the engine what drafts, with random weights; how much is accepted shows by itself."""
    drafts = drafts_of(setup, engine.model)
    return replace(engine, computation=replace(engine.computation, drafts=drafts))


def _kv_cache(engine: EngineSetup, setup: Setup) -> EngineSetup:
    """Turn the KV cache on or off; without it no request waits for memory."""
    kv_cache = setup.deployment.kv_cache
    computation = replace(engine.computation, kv_cache=kv_cache)
    kv_tokens = engine.policies.kv_tokens if kv_cache else NEVER_FULL_TOKENS
    policies = replace(engine.policies, kv_tokens=kv_tokens)
    return replace(engine, computation=computation, policies=policies)


def _exits(engine: EngineSetup, setup: Setup) -> EngineSetup:
    """Let decodes leave the layers where the setup says, as often."""
    exits = setup.deployment.early_exit
    assert exits is not None
    return replace(engine, computation=replace(engine.computation, exits=exits.exits))


def _tensor_parallel(engine: EngineSetup, setup: Setup) -> EngineSetup:
    """Divide the model over as many processes."""
    ways = setup.deployment.parallel.tensor
    shard_config(engine.model, ways)
    return replace(engine, computation=replace(engine.computation, tensor_parallel=ways))


_WIDE = ("fp32", "bf16")
_SAME_NAMES = ("int8", "int4", "w8a8")
_ROUNDS = (
    "it rounds to the nearest by itself (weight-int8, weight-int4, smooth-quant:scales=dynamic)"
)


def _weight_format(engine: EngineSetup, setup: Setup) -> EngineSetup:
    """Round the weights of both phases."""
    computation, form = engine.computation, setup.deployment.decode
    if form != setup.deployment.prefill:
        raise PolicyError("it has one format of weights for prompts and decodes")
    if form.name in _WIDE:
        return replace(engine, computation=replace(computation, weight_format="as-dtype"))
    if form.calibration == "data":
        raise PolicyError(f"{form.name} needs calibration data to choose scales; {_ROUNDS}")
    if form.calibration == "training":
        raise PolicyError(f"{form.name} needs training; {_ROUNDS}")
    if form.name == "llm-int8":
        raise PolicyError(f"it keeps no columns of outliers in fp16; {_ROUNDS}")
    if form.name not in _SAME_NAMES:
        raise PolicyError(f"it has no weights in {form.stored_as}; {_ROUNDS}")
    group = form.grid.group if form.name == "int4" and form.grid else computation.weight_group
    computation = replace(computation, weight_format=form.name, weight_group=group)
    return replace(engine, computation=computation)


def _kv_format(engine: EngineSetup, setup: Setup) -> EngineSetup:
    """Round the keys and values that are stored."""
    size = setup.deployment.kv_element_bytes
    is_wide = size in {KV_FORMATS[name] for name in _WIDE}
    if not is_wide and size != KV_FORMATS["int8"]:
        raise PolicyError("it stores keys and values in int8 only, use kv-quantisation:format=int8")
    stored = replace(engine.computation, kv_format="as-dtype" if is_wide else "int8")
    return replace(engine, computation=stored)


# By field of ``Setup``, for all that lies below it.
TRANSLATIONS: dict[str, Translation] = {
    "acceptance": _drafts,
    "deployment.drafting": _drafts,
    "deployment.early_exit": _exits,
    "policies": _policies,
    "deployment.model": _model,
    "deployment.kv_cache": _kv_cache,
    "deployment.offload": _offload,
    "deployment.weight_sharing": _weight_sharing,
    "deployment.parallel.tensor": _tensor_parallel,
    "deployment.parallel.link": _prediction_only,
    "deployment.prefill": _weight_format,
    "deployment.decode": _weight_format,
    "deployment.kv_element_bytes": _kv_format,
    "deployment.kernels.attention_slowdown": _prediction_only,
    "deployment.model.name": _prediction_only,
}

_CPU = Hardware.model_validate(shipped_json("app/serving/cpu.json"))
# The format of the simulator that is as wide as a data type of torch.
_FORMATS = {"float32": "fp32", "bfloat16": "bf16", "float16": "bf16"}


def plain_setup(engine: EngineSetup, hardware: Hardware = _CPU) -> Setup:
    """Return the engine as the simulator's techniques see it.

    Its kernels fuse nothing and never write the scores of attention to memory.
    """
    form = _FORMATS.get(engine.computation.dtype, "fp32")
    deployment = Deployment(
        shape_of(engine.model),
        hardware,
        prefill=FORMATS[form],
        decode=FORMATS[form],
        kv_element_bytes=KV_FORMATS[form],
        kernels=Kernels(fused=False),
        kv_cache=engine.computation.kv_cache,
        weight_sharing=engine.model.weight_sharing,
    )
    return Setup(deployment, engine.policies, kv_tokens=engine.policies.kv_tokens)


def with_techniques(options: ServeOptions, toggles: Toggles) -> ServeOptions:
    """Return the options of an engine with techniques off and on, in the order given.

    Raises ``CannotRun`` for one that the engine does not run, and ``PolicyError`` where a technique
    itself makes no sense there.
    """
    engine = EngineSetup.of(options)
    setup = plain_setup(engine)
    for changed, technique in _stages(setup, toggles):
        engine, setup = translated(technique.name, engine, setup, changed), changed
    return engine.over(options)


def notes(options: ServeOptions, toggles: Toggles, given: Mapping[str, Any]) -> list[str]:
    """Return which techniques change nothing, and which of the ``given`` settings they change."""
    return toggles.notes(plain_setup(EngineSetup.of(options)), given)


def _stages(setup: Setup, toggles: Toggles) -> Iterator[tuple[Setup, Technique]]:
    """Yield the setup after each technique off, then on."""
    for technique in toggles.off:
        setup = technique.off(setup)
        yield setup, technique
    for technique in toggles.on:
        setup = technique.apply(setup)
        yield setup, technique


def translated(name: str, engine: EngineSetup, before: Setup, after: Setup) -> EngineSetup:
    """Return the engine with what technique ``name`` changes from one setup to another.

    Raises ``CannotRun`` with the field that nothing translates, or the reason of its translation.
    """
    try:
        return _translate(engine, before, after)
    except PolicyError as error:
        runs = ", ".join(engine_forms())
        raise CannotRun(
            f"technique {name}: the bundled engine cannot run it, {error}; it runs {runs}"
        ) from error


def _translate(engine: EngineSetup, before: Setup, after: Setup) -> EngineSetup:
    """Return the engine with every change; raises ``PolicyError`` with the reason."""
    needed = dict.fromkeys(map(_translation_of, changed_fields(before, after)))
    for translation in needed:
        engine = translation(engine, after)
    return engine


def _translation_of(field: str) -> Translation:
    """Return the translation of a field, or of the nearest one above it."""
    place = field
    while place:
        if place in TRANSLATIONS:
            return TRANSLATIONS[place]
        place = place.rpartition(".")[0]
    raise PolicyError(f"it has nothing for {field}")


# The engine that tells which techniques it runs.
SMALL = EngineSetup(PRESETS["small"], PolicyConfig(), Computation())
# Of techniques that need some on the preset ``small``.
_PARAMETERS: dict[str, str] = shipped_json("app/serving/examples.json")


@cache
def engine_forms() -> dict[str, str]:
    """Return the techniques that the bundled engine runs, with parameters for ``small``, by name.

    What it neither turns on nor off is not there: it refuses that, or its kernels always do it.
    """
    forms = {name: f"{name}:{_PARAMETERS.get(name, '')}".rstrip(":") for name in TECHNIQUES}
    return {name: form for name, form in forms.items() if _runs(form)}


def _runs(form: str) -> bool:
    try:
        off, on = find_technique(form).sides(plain_setup(SMALL))
        _translate(SMALL, off, on)
    except ServetwinError:
        return False
    return on != off
