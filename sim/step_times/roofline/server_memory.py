"""What a server takes of the memory of its devices."""

from dataclasses import dataclass

from servetwin.sim.catalogue.hardware import Hardware

RUNTIME_BYTES = 0.5e9
"""On each device, the driver's context and the workspace of libraries."""


@dataclass(frozen=True, slots=True)
class ServerMemory:
    """The ``share`` of a device's memory that weights, the largest step and keys may take.

    ``runtime_bytes`` on each device are the driver's context and workspaces. ``free_share``: keys
    and values take so much of what weights and step leave (TensorRT-LLM). ``is_reported``: a share
    of what the driver reports, not of the data sheet. ``is_profiled``: the largest step is the one
    that vLLM runs as it starts, which keeps two more rows of the model's width and draws no token.
    ``holds_steps``: the share contains the largest step; SGLang's does not.
    """

    share: float = 1.0
    runtime_bytes: float = RUNTIME_BYTES
    free_share: float = 1.0
    is_reported: bool = False
    is_profiled: bool = False
    holds_steps: bool = True

    @property
    def kept_rows(self) -> int:
        """Rows of the model's width that live through a layer beside the residual."""
        return 2 if self.is_profiled else 0

    def device_bytes(self, hardware: Hardware) -> float:
        """Return the memory of a device of which the server has a share."""
        reported = hardware.reported_bytes if self.is_reported else None
        return reported or hardware.memory_bytes


ALL_MEMORY = ServerMemory()
