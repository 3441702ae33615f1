"""Which version of the program this is, and which build of its core."""

from servetwin.policies import lockstep
from servetwin.workloads.version import own_version


def version_line() -> str:
    """Return the name, the version, and whether the core is compiled."""
    return f"servetwin {own_version()} ({'compiled' if is_compiled() else 'pure Python'})"


def is_compiled() -> bool:
    """Return whether Python took the compiled core (``compile_core.py``), not its sources."""
    return not lockstep.__file__.endswith(".py")
