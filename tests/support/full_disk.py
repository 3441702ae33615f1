"""A disk that is full, without one."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def files_at_most(size_bytes: int) -> Iterator[None]:
    """No file of this process may grow beyond; the system says so as it does of a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
