"""What moves keys and values between the device and host memory, around a step."""

from typing import Protocol

from servetwin.policies.batch import Batch


class KVMover(Protocol):
    """Does what the policies have decided; it decides nothing."""

    def before(self, batch: Batch) -> dict[str, Exception]:
        """Move what the step needs or overwrites; return the sequences that cannot run, and why."""

    def after(self, batch: Batch, failed: dict[str, Exception]) -> None:
        """Copy what the step has computed, but for the sequences that failed in it."""
