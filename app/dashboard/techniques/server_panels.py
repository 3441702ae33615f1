"""Panels of the Techniques page on the server as it is: roofline, memory."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd
import streamlit as st

from servetwin.app import figures
from servetwin.app.dashboard.charts import chart, downloads, table
from servetwin.app.dashboard.formatting import page_text
from servetwin.app.dashboard.techniques.data_sheet_server import DataSheetServer
from servetwin.app.dashboard.widgets import control
from servetwin.sim.step_times.roofline import breakdown
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.memory import DeviceMemory
from servetwin.sim.techniques.setup import Setup

_NUMBER = st.column_config.NumberColumn
_OPERATOR_COLUMNS = {
    "share": _NUMBER("of the step", format="percent"),
    "step_ms": _NUMBER("ms", format="%.4g"),
    "flops": _NUMBER("FLOP", format="compact"),
    "moved_bytes": _NUMBER("bytes moved", format="compact"),
    "intensity_flops_per_byte": _NUMBER("FLOP/byte", format="%.3g"),
    "flops_per_s": _NUMBER("attained FLOP/s", format="compact"),
}


def roofline_panel(server: DataSheetServer, setup: Setup) -> None:
    """Draw the operators of a decode step and of a prompt under the device's roof."""
    deployment = setup.deployment
    sequences, context_tokens = _load()
    steps = breakdowns(deployment, sequences, context_tokens)
    for phase, step in steps.items():
        sentence = step_sentence(phase, step).removeprefix(phase)
        st.markdown(f"**{phase.capitalize()}**{sentence}")
    frame = operators_frame(steps)
    peaks = peaks_flops_per_s(deployment)
    figure = figures.roofline(frame, peaks, deployment.hardware.memory_bytes_per_s)
    chart(figure, "techniques_dots", server.source())
    compute, memory = 100 * deployment.efficiency.compute, 100 * deployment.efficiency.memory
    st.caption(page_text("techniques.roofline", compute=compute, memory=memory))
    alt = "The operators of a decode step and of a prompt."
    table(frame, alt, "operators", column_config=_OPERATOR_COLUMNS)


def memory_panel(server: DataSheetServer, setup: Setup) -> None:
    """Draw weights, KV and states in the device's memory, and how many sequences fit."""
    sequences, context_tokens = _load()
    memories = {"This server": DeviceMemory.of(setup.deployment, setup.policies, context_tokens)}
    if server.techniques or server.without:
        untoggled = replace(server.deployment, techniques=(), without=())
        plain = DataSheetServer(untoggled).setup()
        memories["Without techniques"] = DeviceMemory.of(
            plain.deployment, plain.policies, context_tokens
        )
    for name, memory in memories.items():
        _verdict(name, memory, sequences, context_tokens)
    bars = {name: memory.parts(sequences) for name, memory in memories.items()}
    figure = figures.device_memory(bars, memories["This server"].capacity)
    chart(figure, "techniques_memory", server.source())
    here = memories["This server"]
    sizes = {
        "weights": here.weights, "kv": here.kv_per_sequence, "state": here.state_per_sequence,
        "step": here.step, "driver": here.capacity - here.usable,
    }  # fmt: skip
    amounts = {name: f"{size / 1e9:.3g} GB" for name, size in sizes.items()}
    st.caption(page_text("techniques.memory", context_tokens=context_tokens, **amounts))
    frame = pd.DataFrame({"bar": name, **parts} for name, parts in bars.items())
    downloads(frame, "device_memory_bytes")


def _load() -> tuple[int, int]:
    left, right = st.columns(2)
    return control("techniques_batch", 32, left), control("techniques_context", 2_048, right)


def _verdict(name: str, memory: DeviceMemory, sequences: int, context_tokens: int) -> None:
    most = memory.sequences
    fits = f"{name}: {most:,} sequences of {context_tokens:,} tokens fit"
    if memory.weights >= memory.usable:
        st.error(f"{name}: the weights alone do not fit; use more devices or a smaller format.")
    elif most < sequences:
        st.warning(f"{fits}, fewer than the chosen {sequences}.")
    else:
        st.success(f"{fits}, enough for the chosen {sequences}.")


"""Products of an intensity table: (kind, whether scores go through memory)."""


def breakdowns(
    deployment: Deployment, sequences: int, context_tokens: int
) -> dict[str, breakdown.Breakdown]:
    """Return a step of ``sequences`` decodes at this context, and a prefill step of that length."""
    return {
        "decode": breakdown.decode_breakdown(deployment, sequences, context_tokens),
        "prefill": breakdown.prefill_breakdown(deployment, context_tokens),
    }


def operators_frame(steps: Mapping[str, breakdown.Breakdown]) -> pd.DataFrame:
    """Return a row per phase and operator for ``app.figures.techniques``, and the overhead."""
    return pd.DataFrame([row for phase, step in steps.items() for row in _rows(phase, step)])


def peaks_flops_per_s(deployment: Deployment) -> dict[str, float]:
    """Return the peaks of the operators' number formats, by format."""
    forms = [(form.compute, max(1.0, form.compute_share)) for form in
             (deployment.prefill, deployment.decode)]  # fmt: skip
    hardware = deployment.hardware
    return {
        precision if factor == 1 else f"sparse {precision}": hardware.peak(precision) * factor
        for precision, factor in (*forms, (breakdown.ATTENTION, 1.0))
    }


def step_sentence(phase: str, step: breakdown.Breakdown) -> str:
    """Return a sentence on a step: its time, memory- and compute-bound shares, longest operator."""
    longest = max(step.operators, key=lambda placed: placed.step_s)
    shares = ", ".join(
        f"{100 * step.share(bound):.0f} % {bound}-bound" for bound in ("memory", "compute")
    )
    return page_text(
        "techniques.step", phase=phase, step_ms=step.seconds * 1e3, shares=shares,
        rest=100 * step.rest_s / step.seconds, name=longest.operator.name,
        share=100 * longest.step_s / step.seconds, bound=longest.bound,
    )  # fmt: skip


def _rows(phase: str, step: breakdown.Breakdown) -> list[dict[str, Any]]:
    rest = {"phase": phase, "operator": "overhead, launches, messages", "bound": "neither"}
    return [
        *(_row(phase, step, placed) for placed in step.operators),
        {**rest, "step_ms": 1e3 * step.rest_s, "share": step.rest_s / step.seconds,
         "flops": 0.0, "moved_bytes": 0.0, "flops_per_s": 0.0},
    ]  # fmt: skip


def _row(phase: str, step: breakdown.Breakdown, placed: breakdown.Placed) -> dict[str, Any]:
    operator = placed.operator
    return {
        "phase": phase,
        "operator": operator.name,
        "bound": placed.bound,
        "step_ms": 1e3 * placed.step_s,
        "share": placed.step_s / step.seconds,
        "flops": operator.flops,
        "moved_bytes": operator.moved_bytes,
        "intensity_flops_per_byte": operator.intensity,
        "flops_per_s": placed.attained_flops_per_s,
    }
