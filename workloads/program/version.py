"""The version of this program."""

from importlib.metadata import PackageNotFoundError, version


def own_version() -> str:
    """Return the installed version; "unknown" where nothing is installed."""
    try:
        return version("servetwin")
    except PackageNotFoundError:
        return "unknown"
