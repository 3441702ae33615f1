"""The last net under a command: an error that nobody foresaw is one line and a report file."""

import sys
import tempfile
import traceback
from collections.abc import Sequence

# Exit code of an error that nobody foresaw (EX_SOFTWARE of sysexits.h).
OUR_FAULT = 70


_NO_MEMORY = (
    "failed to map segment", "launch worker thread", "start new thread",
    "error return without exception set",
)  # fmt: skip


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory was missing: for an object, a thread, or the code of a library."""
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in _NO_MEMORY)


def last_words(error: Exception, arguments: Sequence[str], version: str) -> tuple[str, int]:
    """Return the line and the exit code for an error that is not the user's.

    What the system refuses (a full disk) has exit code 1. For anything else the line
    names a file with the traceback, the versions and the arguments without secrets.
    """
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror or error}", 1
    from servetwin.loadtest.redaction import hide_secrets

    trace = "".join(traceback.format_exception(error))
    text = f"{version}, Python {sys.version}\nservetwin {' '.join(arguments)}\n\n{trace}"
    line = f"an error of servetwin itself ({type(error).__name__})"
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="servetwin-error-", suffix=".txt", delete=False, errors="backslashreplace"
        ) as file:
            file.write(hide_secrets(text))
    except OSError:
        return line, OUR_FAULT
    return f"{line}; {file.name} has what to report", OUR_FAULT
