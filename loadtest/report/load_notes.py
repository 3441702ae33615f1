"""What a reader must know of how the load was sent, beside the figures."""

from textwrap import fill

from sim.records.run import Run
from workloads.rows import counted

CLOSED_LOOP = (
    "CLOSED LOOP: while the server stalls its users wait, so fewer requests meet a stall than with "
    "clients who do not know of it (coordinated omission); --arrivals shows what those would see"
)


def load_notes(run: Run) -> list[str]:
    """A line for each: closed loop, warm-up, hang-ups, retries, what came due too late."""
    lines = (_closed_loop(run), _warm_up(run), _hung_up(run), _retries(run), _too_late(run))
    return [fill(line, 99, subsequent_indent="  ") for line in lines if line]


def _options(run: Run, name: str) -> object:
    return run.scenario.get("options", {}).get(name)


def _closed_loop(run: Run) -> str | None:
    return CLOSED_LOOP if _options(run, "concurrency") else None


def _warm_up(run: Run) -> str | None:
    rows = run.requests
    count = int(rows["warm_up"].sum()) if "warm_up" in rows else 0
    if not count:
        return None
    was = counted(count, "request")
    return f"warm-up: {was} due in the first {_options(run, 'warm_up_s'):g} s, in no figure below"


def _hung_up(run: Run) -> str | None:
    count = run.extra["delivered"].get("cancelled_by_test", 0)
    if not count:
        return None
    return f"cancellation test: its clients hung up on {counted(count, 'request')}; no failures"


def _retries(run: Run) -> str | None:
    count = run.extra["delivered"].get("retries", 0)
    if not count:
        return None
    asked = counted(int((run.requests["attempts"] > 1).sum()), "request")
    more = "retry" if count == 1 else "retries"
    return (
        f"{count} {more} of {asked}: their latencies count from when they were first due, waiting "
        "included"
    )


def _too_late(run: Run) -> str | None:
    count = run.extra["delivered"].get("too_late", 0)
    if not count:
        return None
    return f"{counted(count, 'follow-up')} not sent: due after the duration"
