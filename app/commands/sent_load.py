"""Send a load to an endpoint, with its progress on the terminal."""

from typing import TYPE_CHECKING

from app.text.progress import progress

if TYPE_CHECKING:
    from loadtest.endpoint import Endpoint
    from loadtest.run.client import LoadOptions, OnProgress, Progress
    from loadtest.run.journal import Journal
    from sim.records.run import Run
    from workloads.trace import Trace


def sent_load(
    endpoint: "Endpoint",
    trace: "Trace",
    load: "LoadOptions",
    show: "OnProgress",
    journal: "Journal",
) -> "Run":
    """Send a load; ``show`` gets its progress too, and ``journal`` what has ended."""
    from loadtest.run.client import run_load_test

    if load.endless:
        label, total = f"load test, {load.duration_s:g} s", round(load.duration_s or 0)
    else:
        label, total = f"load test, {trace.span_s:.0f} s of arrivals", len(trace)
    with progress(label, total=total) as advance:

        def on_progress(state: "Progress") -> None:
            advance(round(state.elapsed_s) if load.endless else state.ended)
            show(state)

        return run_load_test(
            endpoint, trace, options=load, on_progress=on_progress, journal=journal
        )
