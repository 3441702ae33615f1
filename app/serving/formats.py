"""Number formats of the simulator as the bundled engine has them, or why it has none such."""

from dataclasses import replace

from servetwin.engine.models.computation import Computation
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.formats import KV_FORMATS, Format
from servetwin.workloads.errors import PolicyError

_WIDE = ("fp32", "bf16")
_SAME_NAMES = ("int8", "int4", "w8a8")
_ROUNDS = (
    "it rounds to the nearest by itself (weight-int8, weight-int4, smooth-quant:scales=dynamic)"
)


def with_weight_format(computation: Computation, deployment: Deployment) -> Computation:
    """Return the computation with the weights of a deployment.

    Raises ``PolicyError`` for two formats by phase, and for one that the engine cannot make.
    """
    form = deployment.decode
    if form != deployment.prefill:
        raise PolicyError("it has one format of weights for prompts and decodes")
    if form.name in _WIDE:
        return replace(computation, weight_format="as-dtype")
    if why := _cannot_make(form):
        raise PolicyError(why)
    group = form.grid.group if form.name == "int4" and form.grid else computation.weight_group
    return replace(computation, weight_format=form.name, weight_group=group)


def _cannot_make(form: Format) -> str:
    """Return why the engine has no such weights; an empty text where it has."""
    if form.calibration == "data":
        return f"{form.name} needs calibration data to choose scales; {_ROUNDS}"
    if form.calibration == "training":
        return f"{form.name} needs training; {_ROUNDS}"
    if form.name == "llm-int8":
        return f"it keeps no columns of outliers in fp16; {_ROUNDS}"
    return "" if form.name in _SAME_NAMES else f"it has no weights in {form.stored_as}; {_ROUNDS}"


def with_kv_format(computation: Computation, deployment: Deployment) -> Computation:
    """Return the computation with the keys and values of a deployment.

    Raises ``PolicyError`` for a format that the engine does not store.
    """
    size = deployment.kv_element_bytes
    if size in {KV_FORMATS[name] for name in _WIDE}:
        return replace(computation, kv_format="as-dtype")
    if size != KV_FORMATS["int8"]:
        raise PolicyError("it stores keys and values in int8 only, use kv-quantisation:format=int8")
    return replace(computation, kv_format="int8")
