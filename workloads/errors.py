"""What can go wrong for a user. Each message says what was wrong, where, and what would be right.

ServetwinError
├── TraceError       a request trace that cannot be read or generated
├── PolicyError      an unknown or impossible scheduling or memory policy
├── PluginError      a plug-in of a file that cannot be loaded, or failed
├── ProfileError     a step-time profile that cannot be read or does not apply
├── ShapeError       a model or device that is unknown, impossible or cannot be read
├── EngineError      the bundled engine cannot start or has died
├── MockError        a mock endpoint cannot start
└── LoadTestError    a load test that cannot start
    ├── Unreachable  ... because nothing answers there (exit code 1: the input is not bad)
    └── EndedEarly   ... or that was cut short, like a calibration or a sweep (exit code 1)
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches


class ServetwinError(Exception):
    """Base of every error that a user can act on; the command line prints it as one line."""

    exit_code = 2


class TraceError(ServetwinError):
    """A request trace cannot be read or generated."""


class PolicyError(ServetwinError):
    """A scheduling or memory policy is unknown or impossible."""


class PluginError(ServetwinError):
    """A plug-in of a file cannot be loaded or built, failed, or returned what it must not."""


class ProfileError(ServetwinError):
    """A step-time profile cannot be read or does not apply."""


class ShapeError(ServetwinError):
    """A model or device is unknown, impossible or cannot be read."""


class EngineError(ServetwinError):
    """The bundled engine cannot start or has died."""


class MockError(ServetwinError):
    """A mock endpoint cannot start, or its plan cannot be read."""


class LoadTestError(ServetwinError):
    """A load test cannot start."""


class Unreachable(LoadTestError):
    """Nothing answers at the endpoint's URL."""

    exit_code = 1


class EndedEarly(LoadTestError):
    """A load test, a calibration or a sweep was interrupted, or its endpoint failed, on the way."""

    exit_code = 1


@contextmanager
def os_errors(kind: type[ServetwinError], problem: str, *others: type[Exception]) -> Iterator[None]:
    """Raise ``kind`` with the problem and the reason for an ``OSError`` inside, or for others."""
    causes: tuple[type[Exception], ...] = (OSError, *others)
    try:
        yield
    except causes as error:
        reason = str(getattr(error, "strerror", None) or error)
        raise kind(f"{problem} ({' '.join(reason.split())})") from error


def did_you_mean(name: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """Return a hint for an unknown name: the nearest one, else ``otherwise`` or all known ones."""
    names = list(known)
    if near := get_close_matches(name, names, n=1):
        return f"did you mean {near[0]!r}?"
    return f"known are {', '.join(names)}" if otherwise is None else otherwise


def require_name(
    name: str,
    known: Iterable[str],
    unknown: str,
    error: type[ServetwinError],
    otherwise: str | None = None,
) -> None:
    """Raise ``error`` for a name that is not known: ``unknown``, the name, and a hint."""
    names = list(known)
    if name not in names:
        raise error(f"{unknown} {name!r}; {did_you_mean(name, names, otherwise)}")
