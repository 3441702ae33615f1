"""``servetwin verify``: calibrate, predict, load-test and judge, on one engine per policy."""

from servetwin.app.scenario.options.groups import takes_options
from servetwin.app.scenario.options.measured import VerifyOptions


@takes_options(
    "--url", "--policy", "--model", "--trace", "--utilisation", "--profile", "--out", "--why",
)  # fmt: skip
def verify(options: VerifyOptions) -> None:
    """Calibrate, forecast a trace, then load-test the engine and judge the forecast.

    The exit code is 0 if the forecast holds, 1 if it is refuted, 3 if the load tests cannot tell.
    An endpoint without a step log that can be read here is calibrated as a black box. With
    --technique (repeatable), the bundled engine runs without and with it, and the effect that its
    formula predicts is judged. With --recorded nothing is sent: a run that was recorded elsewhere
    judges a profile or layer times.
    """
    from servetwin.app.tasks.verify import verify_live, verify_recorded_run

    run = verify_live if options.server.recorded is None else verify_recorded_run
    run(options)
