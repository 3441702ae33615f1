"""The reference beat: a small fixed computation that tells how fast the machine is at a moment.

Shared cores change their speed from second to second, and neither CPU time nor the load of the
machine shows it. A computation that is always the same does: its time, taken between two steps on
the thread and device of the steps, divides what the machine did out of theirs.
"""

import torch

# A matrix of 16 MiB, larger than the caches of a core: a decode reads weights in this way.
_ROWS, _COLUMNS = 4_096, 1_024
# A product as that of a prompt: arithmetic on what the caches hold.
_BATCH, _WIDTH = 48, 640


class Beat:
    """Computes one beat at each call; 1 to 2 ms on one core, a tenth of that on a GPU.

    Half of it is bound by memory, as decodes are, half by arithmetic, as prompts are.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        draw = torch.Generator().manual_seed(0)

        def matrix(rows: int, columns: int) -> torch.Tensor:
            return torch.randn(rows, columns, generator=draw).to(self._device)

        self._weights, self._vector = matrix(_ROWS, _COLUMNS), matrix(_COLUMNS, 1)
        self._rows, self._square = matrix(_BATCH, _WIDTH), matrix(_WIDTH, _WIDTH) / _WIDTH**0.5

    @torch.inference_mode()
    def __call__(self) -> float | None:
        """Compute, and return the seconds by the clock of the device; None where it has none."""
        if self._device.type != "cuda":
            self._compute()
            return None
        began = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        ended = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        began.record()
        self._compute()
        ended.record()
        ended.synchronize()
        return 1e-3 * float(began.elapsed_time(ended))

    def _compute(self) -> None:
        self._weights @ self._vector
        rows = self._rows
        for _ in range(3):
            rows = rows @ self._square
