"""Panels of the Techniques page on the server as it is: roofline, memory, tables."""

import pandas as pd
import streamlit as st

from servetwin.app import figures
from servetwin.app.dashboard.charts import chart
from servetwin.app.dashboard.downloads import downloads
from servetwin.app.dashboard.techniques import server_tables
from servetwin.app.dashboard.techniques.data_sheet_server import DataSheetServer
from servetwin.app.dashboard.widgets import bound
from servetwin.app.reports.techniques.arithmetic import intensity_report, latency_report
from servetwin.app.scenario.options.techniques import IntensityOptions, LatencyOptions
from servetwin.sim.step_times.roofline.memory import DeviceMemory
from servetwin.sim.techniques.setup import Setup

MOST_SEQUENCES = 512
CONTEXT_STEP = 128
MOST_CONTEXT = 32_768
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
    steps = server_tables.breakdowns(deployment, sequences, context_tokens)
    for phase, step in steps.items():
        said = server_tables.step_sentence(phase, step).removeprefix(phase)
        st.markdown(f"**{phase.capitalize()}**{said}")
    frame = server_tables.operators_frame(steps)
    peaks = server_tables.peaks_flops_per_s(deployment)
    figure = figures.roofline(frame, peaks, deployment.hardware.memory_bytes_per_s)
    chart(figure, "techniques_dots", server.source())
    st.caption(
        "Filled symbols: a decode step of these sequences at this context. Open symbols: the "
        "prefill of one prompt of that length. A larger symbol takes a larger share of the step. "
        "Left of the ridge an operator is memory-bound, right of it compute-bound. Symbols lie "
        "below the roof, for kernels are assumed to achieve "
        f"{100 * deployment.efficiency.compute:.0f} % of FLOP/s and "
        f"{100 * deployment.efficiency.memory:.0f} % of bandwidth. Drafting is left out."
    )
    st.dataframe(
        frame, hide_index=True, column_config=_OPERATOR_COLUMNS, placeholder="-",
        alt="The operators of a decode step and of a prompt.",
    )  # fmt: skip
    downloads(frame, "operators")


def memory_panel(server: DataSheetServer, setup: Setup) -> None:
    """Draw weights, KV and states in the device's memory, and how many sequences fit."""
    sequences, context_tokens = _load()
    memories = {"This server": DeviceMemory.of(setup.deployment, setup.policies, context_tokens)}
    if server.techniques or server.without:
        plain = DataSheetServer(server.model, server.hardware).setup()
        memories["Without techniques"] = DeviceMemory.of(
            plain.deployment, plain.policies, context_tokens
        )
    for name, memory in memories.items():
        _verdict(name, memory, sequences, context_tokens)
    bars = {name: memory.parts(sequences) for name, memory in memories.items()}
    figure = figures.device_memory(bars, memories["This server"].capacity)
    chart(figure, "techniques_memory", server.source())
    here = memories["This server"]
    st.caption(
        f"Weights {_gb(here.weights)}; a sequence of {context_tokens:,} tokens takes "
        f"{_gb(here.kv_per_sequence)} of keys and values and {_gb(here.state_per_sequence)} of "
        f"state, the tensors of the largest step {_gb(here.step)}. Sequences that fit = (usable "
        f"memory - weights - step) / bytes of a sequence; {_gb(here.capacity - here.usable)} are "
        "the driver's and its libraries'."
    )
    frame = pd.DataFrame({"bar": name, **parts} for name, parts in bars.items())
    downloads(frame, "device_memory_bytes")


def tables_panel(server: DataSheetServer, setup: Setup) -> None:
    """Draw intensities, work per token and decode latencies by the textbook's formulas."""
    st.caption(
        f"The formulas alone, for {server.model} in bf16 on one {server.hardware} at its data "
        "sheet: no techniques, no overhead. `servetwin techniques intensity` and `latency` print "
        "the same."
    )
    _intensities(server)
    _latencies(server)


def _intensities(server: DataSheetServer) -> None:
    report = intensity_report(
        IntensityOptions(server.model, element_bytes=2.0, hardware=server.hardware)
    )
    st.subheader("Intensity, FLOP/byte")
    grids = {
        product: server_tables.intensity_grid(report, product) for product in server_tables.PRODUCTS
    }
    known = [product for product, grid in grids.items() if not grid.empty]
    product = st.selectbox(
        "Product", known, key="techniques_product",
        help="n rows computed at once against l keys; empty where n > l.",
    )  # fmt: skip
    ridge = report["ridge"]["flops_per_byte"]
    shown = grids[product].style.format("{:.4g}")
    bold = shown.map(lambda cell: "font-weight: bold" if cell > ridge else "")
    st.dataframe(bold, placeholder="-", alt=f"Intensity of {product} by rows and keys.")
    st.caption(
        f"Above the ridge of {ridge:,.0f} FLOP/byte (bold) a product is compute-bound, below it "
        "memory-bound."
    )
    downloads(grids[product].reset_index(), "intensity")
    st.subheader("Work per token")
    work = server_tables.work_frame(report)
    st.dataframe(work, hide_index=True, alt="Work per token.")
    downloads(work, "work_per_token")


def _latencies(server: DataSheetServer) -> None:
    st.subheader("Decode latency = bytes / bandwidth")
    context_tokens = st.slider(
        "Context, tokens", CONTEXT_STEP, MOST_CONTEXT, 1_024, CONTEXT_STEP, key="techniques_latency"
    )
    options = LatencyOptions(server.model, server.hardware, "1,4,16,64,256", context=context_tokens)
    report = latency_report(options)
    frame = server_tables.latency_frame(report)
    st.dataframe(frame, hide_index=True, alt="Decode latency by sequences in a step.")
    (limit,) = report["most_tokens_per_s"]
    st.caption(f"Throughput tends to {limit:,.0f} tokens/s as the batch grows.")
    downloads(frame, "decode_latency")


def _load() -> tuple[int, int]:
    left, right = st.columns(2)
    batch, context = bound("techniques_batch"), bound("techniques_context")
    sequences = left.slider("Sequences in a step", 1, MOST_SEQUENCES, 32, **batch)
    bounds = CONTEXT_STEP, MOST_CONTEXT, 2_048, CONTEXT_STEP
    return sequences, right.slider("Context, tokens", *bounds, **context)


def _verdict(name: str, memory: DeviceMemory, sequences: int, context_tokens: int) -> None:
    most = memory.sequences
    fits = f"{name}: {most:,} sequences of {context_tokens:,} tokens fit"
    if memory.weights >= memory.usable:
        st.error(f"{name}: the weights alone do not fit; use more devices or a smaller format.")
    elif most < sequences:
        st.warning(f"{fits}, fewer than the chosen {sequences}.")
    else:
        st.success(f"{fits}, enough for the chosen {sequences}.")


def _gb(size_bytes: float) -> str:
    return f"{size_bytes / 1e9:.3g} GB"
