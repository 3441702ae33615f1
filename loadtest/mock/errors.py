"""What can go wrong for who starts a mock endpoint."""

from workloads.errors import ServetwinError


class MockError(ServetwinError):
    """A mock endpoint cannot start, or its plan cannot be read."""
