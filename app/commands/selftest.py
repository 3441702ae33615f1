"""``servetwin selftest``: the installed simulator meets three results of queueing theory."""

from servetwin.app.scenario.options.common import Json


def selftest(as_json: Json = False) -> None:
    """Compare the simulator with M/D/1, M/M/1 and Little's law; takes a few seconds."""
    from servetwin.app.tasks.selftest import run

    run(as_json)
