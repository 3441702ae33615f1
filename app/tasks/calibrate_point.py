"""From one measured point of a server: the factor on its kernels, and its overheads."""

import numpy as np

from servetwin.app.calibration.point import (
    MeasuredPoint,
    ServerUnderLoad,
    fit_point,
    means_s,
    users_trace,
)
from servetwin.app.command import print_result
from servetwin.app.scenario.options.measured import CalibrationOptions
from servetwin.app.scenario.scenarios import recorded_server
from servetwin.sim.step_times.tables import KernelTable, LayerTable, LoadedTable, TableProfile
from servetwin.sim.step_times.tables.server_overheads import ServerOverheads, fitted_overheads
from servetwin.workloads.errors import PolicyError, ProfileError
from servetwin.workloads.key_values import key_values

OPTION = "--point"
FORM = "ttft=SECONDS,tpot=SECONDS,users=N,prompt=TOKENS,output=TOKENS"
FAR = 0.1
"""The share by which a fit may miss its point."""
_NAMES = ("ttft", "tpot", "users", "prompt", "output")


def parse_point(text: str) -> MeasuredPoint:
    """Return the point that ``FORM`` stands for, under the load of users without pauses.

    Raises ``PolicyError`` that names what is missing, unknown or no number above 0.
    """
    given = key_values(text, OPTION, form=FORM)
    if missing := [name for name in _NAMES if name not in given]:
        raise PolicyError(f"{OPTION}: {missing[0]} is missing; write {FORM}")
    if unknown := given.keys() - set(_NAMES):
        raise PolicyError(f"{OPTION}: no part {min(unknown)!r}; write {FORM}")
    seconds = [_above_0(name, given[name], float) for name in _NAMES[:2]]
    counts = [int(_above_0(name, given[name], int)) for name in _NAMES[2:]]
    return MeasuredPoint(users_trace(*counts), *seconds)


def calibrate_point(options: CalibrationOptions) -> None:
    """Fit a factor and overheads to ``--point``, and print them as ``--overheads`` takes them."""
    assert options.point is not None
    point = parse_point(options.point)
    servers = options.server.recorded_servers()
    scenario = recorded_server(point.trace, servers, options.policy, options.server.link)
    table = scenario.profile.table if isinstance(scenario.profile, TableProfile) else None
    prior = _prior(servers.tables.backend or "vllm")
    if isinstance(table, LoadedTable):
        prior, table = table.overheads, table.table
    if not isinstance(table, KernelTable | LayerTable):
        raise PolicyError(f"{OPTION}: goes with --model and --times kernels or layers:DIR")
    server = ServerUnderLoad(point, table, scenario.policies, scenario.cluster)
    found = fit_point(server, prior)
    measured_s, predicted_s = server.measured_s(), means_s(server.run(found))
    pairs = zip(("TTFT", "TPOT"), measured_s, predicted_s, strict=True)
    far = np.abs(predicted_s / measured_s - 1).max() > FAR
    lines = [
        *(f"{name}: {1e3 * was:.4g} ms measured, {1e3 * s:.4g} ms here" for name, was, s in pairs),
        *(["not met: is it of this model, format, layout and version?"] if far else []),
        found.described(),
        f"next: servetwin replay TRACE ... --overheads {found.as_text()}",
    ]
    print_result(options.server.json, {"overheads": found.as_text()}, lines)


def _prior(backend: str | None) -> ServerOverheads:
    try:
        return fitted_overheads(backend)
    except ProfileError:
        return ServerOverheads()


def _above_0(name: str, text: str, kind: type[float] | type[int]) -> float:
    try:
        value = kind(text)
    except ValueError:
        value = 0
    if not 0 < value < 1e9:
        what = "a whole number" if kind is int else "seconds"
        raise PolicyError(f"{OPTION}: {name}={text}: {what} above 0; write {FORM}")
    return value
