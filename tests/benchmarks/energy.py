"""Fit the shares of power and print their errors: ``python -m tests.benchmarks.energy``."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import typer

from tests.support.energy_points import Point, errors, fitted, left_out, points


def main() -> None:
    """Print the fit, its errors where whole kinds are left out, and those of the step times."""
    known, others = points()
    typer.echo(f"{len(known)} points, {others} of other tasks left out; {fitted(known)}")
    kinds: dict[str, Callable[[Point], str]] = {
        "model": lambda point: point.family,
        "device": lambda point: point.deployment.hardware.name,
    }
    for name, by in kinds.items():
        for measured in (True, False):
            parts = [errors(out, fit, measured) for fit, out in left_out(by, known)]
            off = np.concatenate(parts, axis=1)
            typer.echo(f"{name} left out, {'measured' if measured else 'our'} durations:")
            typer.echo(f"  J/token {_words(off[0])}\n  watts {_words(off[1])}")
    for device in sorted({point.deployment.hardware.name for point in known}):
        here = [point for point in known if point.deployment.hardware.name == device]
        itl = [point.predicted_itl_s / point.measured_itl_s - 1 for point in here]
        typer.echo(f"ITL on {device}: {len(here)} points, {_words(itl)}")


def _words(off: npt.ArrayLike) -> str:
    median, p90 = np.quantile(np.abs(off), (0.5, 0.9))
    low, middle, high = np.quantile(1 / (1 + np.array(off)), (0.05, 0.5, 0.95))
    return f"{median:.1%} (p90 {p90:.1%}); measured/predicted {low:.2f} {middle:.2f} {high:.2f}"


if __name__ == "__main__":
    main()
