"""The report of a calibration from a recorded run."""

from collections.abc import Mapping

from servetwin.app.calibration.recorded import RecordedCalibration
from servetwin.app.reports.tables import note_lines
from servetwin.sim.experiments.stamp_fit import REQUEST_S

_LATENCIES = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "E2E"}


def calibration_lines(found: RecordedCalibration, prior: Mapping[str, float] | None) -> list[str]:
    """Return the coefficients, what the log identifies, and the errors on later requests."""
    fit, identified = found.fit, set(found.fit.identified)
    values = ", ".join(f"{value:.3g}" for value in fit.singular_values)
    around = "around the prior" if prior else "around a rough guess"
    return [
        f"fitted to the stamps of {found.fitted} of {found.requests} requests, in "
        f"{fit.simulations} simulations, {around}",
        "",
        f"{'':<26}{'us':>12}{'known to':>12}",
        *(
            f"{name:<26}{1e6 * value:>12.4g}{_known(fit.deviations[name]):>12}"
            + ("" if name in identified else "  not identified by this log")
            for name, value in fit.coefficients.items()
        ),
        f"singular values: {values}",
        "",
        *_errors("later requests, which were not fitted", found.held_out),
        *_errors("all requests", found.whole),
        f"misfit of neighbouring requests' TPOT: {100 * found.misfit:.1f} %, in every interval",
        "",
        *note_lines(found.evidence),
        *note_lines(
            ["the API's latency was fitted too: the stamps are those of clients"]
            if REQUEST_S in fit.coefficients
            else []
        ),
    ]


def _known(deviation: float) -> str:
    return f"+-{100 * deviation:.0f} %" if deviation < 1 else "-"


def _errors(what: str, errors: Mapping[str, float]) -> list[str]:
    if not errors:
        return []
    shown = ", ".join(f"{_LATENCIES[name]} {100 * error:+.2f} %" for name, error in errors.items())
    return [f"{what}: mean {shown}"]
