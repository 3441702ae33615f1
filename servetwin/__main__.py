"""The command line: ``servetwin``, and ``python -m servetwin``."""

import gc
import signal

from servetwin.address_space import guard_imports

# So many objects are made before the first search for garbage: more than most imports make.
_IMPORTED = 300_000
_USUAL = gc.get_threshold()


def _keep_imports(phase: str, info: dict[str, int]) -> None:
    """Leave what was imported out of this search for garbage and of all later ones."""
    gc.callbacks.remove(_keep_imports)
    gc.freeze()
    gc.set_threshold(*_USUAL)


def main() -> None:
    """Run a command; Ctrl-C while it is imported ends it without a traceback.

    SIGTERM ends it as Ctrl-C does: what was done is kept.
    """
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    guard_imports()
    gc.set_threshold(_IMPORTED)
    gc.callbacks.append(_keep_imports)
    from servetwin.app.cli import main as run

    signal.signal(signal.SIGINT, handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
