"""The command line: ``servetwin``, and ``python -m servetwin``."""

import gc
import signal

from servetwin.address_space import guard_imports


def main() -> None:
    """Run a command; Ctrl-C while it is imported ends it without a traceback.

    SIGTERM ends it as Ctrl-C does: what was done is kept.
    """
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    guard_imports()
    gc.disable()  # while much is imported that lasts; ``lasting_imports`` says the same of commands
    from servetwin.app.cli import main as run

    gc.enable()

    signal.signal(signal.SIGINT, handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
