"""``servetwin calibrate``: make a profile of an engine."""

from servetwin.app.scenario.options.groups import takes_options
from servetwin.app.scenario.options.measured import CalibrationOptions


@takes_options(
    "--url", "--model", "--recorded", "--point", "--device", "--threads", "--rounds", "--out",
)  # fmt: skip
def calibrate(options: CalibrationOptions) -> None:
    """Drive the bundled engine over a grid of shapes and fit its step time, for both KV layouts.

    With --url: drive any OpenAI-compatible endpoint, and learn its step time, policies and limits
    from what its clients see; the API key comes from OPENAI_API_KEY.

    With --recorded: fit the step times to the stamps of requests in a run that was recorded
    elsewhere, given the server's limits; with --model and --gpu or --times layers:DIR around these.

    With --point: from TTFT and TPOT at one load, what kernel or layer times need to meet them.
    """
    from servetwin.app.tasks.calibrate import calibrate_live, calibrate_point, calibrate_recorded

    if options.point is not None:
        return calibrate_point(options)
    run = calibrate_live if options.server.recorded is None else calibrate_recorded
    run(options)
