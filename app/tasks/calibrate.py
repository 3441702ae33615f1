"""Make a profile: of an engine that is driven, of a run that was recorded, or of tables."""

from pathlib import Path

import numpy as np
import typer

from servetwin.app.calibration.black_box.calibration import BlackBoxCalibrator
from servetwin.app.calibration.black_box.sender import Allowance
from servetwin.app.calibration.point import ServerUnderLoad, fit_point, means_s, users_trace
from servetwin.app.calibration.recorded import calibrate_recorded as fit_recorded
from servetwin.app.command import print_result
from servetwin.app.reports.progress import progress, report_progress
from servetwin.app.reports.verdict import calibration_lines, profile_lines
from servetwin.app.scenario.options.engine import require_engine
from servetwin.app.scenario.options.measured import CalibrationOptions, MeasuredServer
from servetwin.app.scenario.options.trace import TraceOptions
from servetwin.app.scenario.scenarios import recorded_prior, recorded_server
from servetwin.loadtest.endpoint import Endpoint
from servetwin.loadtest.recorded.recorded_run import RecordedRun, load_recorded_run
from servetwin.loadtest.run.event_loop import signals_deferred
from servetwin.sim.experiments.stamp_fit import FITTED
from servetwin.sim.step_times.linearised import linearised
from servetwin.sim.step_times.tables import KernelTable, LayerTable, LoadedTable, TableProfile
from servetwin.sim.step_times.tables.server_overheads import ServerOverheads, fitted_overheads
from servetwin.workloads.errors import LoadTestError, PolicyError, ProfileError
from servetwin.workloads.program.key_values import key_values, number_in, share_in
from servetwin.workloads.tables.mapping import parse_mapping
from servetwin.workloads.trace import Trace

# About as many as a fit to a recorded run takes at most.
MOST_SIMULATIONS = 200
POINT = "--point"
POINT_FORM = "ttft=SECONDS,tpot=SECONDS,users=N,prompt=TOKENS,output=TOKENS"
# The share by which a fit may miss its point.
FAR = 0.1
_POINT_NAMES = ("ttft", "tpot", "users", "prompt", "output")


def recorded_run(path: Path, table: TraceOptions) -> RecordedRun:
    """Return a run that was recorded: of a run folder, or of a file."""
    return load_recorded_run(path, parse_mapping(table.columns) if table.columns else None)


def black_box(server: MeasuredServer, endpoint: Endpoint) -> BlackBoxCalibrator:
    """Return what calibrates an endpoint by what its clients see, within the limits."""
    allowance = Allowance(60 * server.limits.max_minutes, server.limits.max_requests)
    return BlackBoxCalibrator(endpoint, allowance, server.seed, report_progress)


def calibrate_recorded(options: CalibrationOptions) -> None:
    """Fit a profile to a recorded run, write it and print it."""
    server = options.server
    assert server.recorded
    server.require_recorded_alone({})
    servers, until = server.recorded_servers(), _share(options.until)
    with options.overwriting.claimed_output(options.out, "profile"):
        recorded = recorded_run(server.recorded, options.table)
        config, model_times = recorded_prior(recorded.trace, servers, options.policy, server.link)
        prior = linearised(model_times, FITTED) if model_times else None
        with progress("simulations", total=MOST_SIMULATIONS) as advance:
            fit = fit_recorded(
                recorded, config, until=until, prior=prior, seed=server.seed, on_simulation=advance
            )
        fit.profile(options.label, recorded, server.model).save(options.out)
    lines = [*calibration_lines(fit, prior), f"profile: {options.out}"]
    print_result(server.json, {"profile": str(options.out), **fit.as_dict()}, lines)


def calibrate_live(options: CalibrationOptions) -> None:
    """Measure the bundled engine or an endpoint, write its profile and print it."""
    if options.table.columns is not None:
        raise LoadTestError("--map: names the columns of a table; give it with --recorded")
    server, policy = options.server, options.policy
    server.require_live(policy, *(() if server.url else ("--technique", "--without")))
    out = options.out
    with options.overwriting.claimed_output(out, "profile"):
        if endpoint := server.probe():
            calibrator = black_box(server, endpoint)
            calibrator.identify(options.rounds)
            with signals_deferred():  # what was measured is not lost in the last moment
                profile = calibrator.profile(options.label)
                profile.save(out)
            lines = [*calibrator.limits.lines(), f"profile: {out}"]
        else:
            require_engine()
            from servetwin.app.calibration.step_log import calibrate_bundled

            engine = server.choice()
            profile = calibrate_bundled(
                policy.over(engine.policies()), engine, options.rounds, options.label,
                report_progress, server.endpoint.prompt_salt, server.servers.toggles(),
            )  # fmt: skip
            lines = [f"profile: {out}", f"next: servetwin replay TRACE --profile {out}"]
            profile.save(out)
    print_result(server.json, profile.model_dump(by_alias=True), [*profile_lines(profile), *lines])
    if profile.ended_early:
        ended = f"servetwin: calibration ended early: {profile.ended_early}"
        report_progress(f"{ended}; what was measured is kept, and --overwrite begins again")
        raise typer.Exit(1)


def parse_point(text: str) -> tuple[Trace, float, float]:
    """Return the load of users without pauses of ``POINT_FORM``, and its TTFT and TPOT (s).

    Raises ``PolicyError`` that names what is missing, unknown or no number above 0.
    """
    given = key_values(text, POINT, form=POINT_FORM)
    if missing := [name for name in _POINT_NAMES if name not in given]:
        raise PolicyError(f"{POINT}: {missing[0]} is missing; write {POINT_FORM}")
    if unknown := given.keys() - set(_POINT_NAMES):
        raise PolicyError(f"{POINT}: no part {min(unknown)!r}; write {POINT_FORM}")
    ttft_s, tpot_s = (_above_0(name, given[name], float) for name in _POINT_NAMES[:2])
    counts = [int(_above_0(name, given[name], int)) for name in _POINT_NAMES[2:]]
    return users_trace(*counts), ttft_s, tpot_s


def calibrate_point(options: CalibrationOptions) -> None:
    """Fit a factor and overheads to ``--point``, and print them as ``--overheads`` takes them."""
    assert options.point is not None
    trace, ttft_s, tpot_s = parse_point(options.point)
    servers = options.server.recorded_servers()
    scenario = recorded_server(trace, servers, options.policy, options.server.link)
    table = scenario.profile.table if isinstance(scenario.profile, TableProfile) else None
    prior = _prior(servers.backend or "vllm")
    if isinstance(table, LoadedTable):
        prior, table = table.overheads, table.table
    if not isinstance(table, KernelTable | LayerTable):
        raise PolicyError(f"{POINT}: goes with --model and --times kernels or layers:DIR")
    server = ServerUnderLoad(trace, ttft_s, tpot_s, table, scenario.policies, scenario.cluster)
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
    value = number_in(text)
    if not 0 < value < 1e9 or (kind is int and not value.is_integer()):
        what = "a whole number" if kind is int else "seconds"
        raise PolicyError(f"{POINT}: {name}={text}: {what} above 0; write {POINT_FORM}")
    return value


def _share(text: str) -> float:
    """Return the share that ``50%`` or ``0.5`` stands for."""
    share = share_in(text)
    if not 0 < share <= 1:
        raise LoadTestError(f"--until: {text!r} is not a share such as 50% or 0.5")
    return share
