"""Affine quantisation: a real number as a whole code, a scale and a zero point."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class AffineGrid:
    """Q = R / S + Z, with ``scale`` S and ``zero_point`` Z; codes are ``lowest`` to ``highest``."""

    scale: float
    zero_point: float
    lowest: int
    highest: int

    @classmethod
    def over(
        cls, smallest: float, largest: float, lowest: int = -128, highest: int = 127
    ) -> "AffineGrid":
        """Return the grid that maps ``smallest`` to ``lowest`` and ``largest`` to ``highest``.

        S = (Rmax - Rmin) / (Qmax - Qmin); Z = Qmax - Rmax / S = Qmin - Rmin / S (Jacob 2018).
        Raises ``ValueError`` where a range is empty.
        """
        if smallest >= largest or lowest >= highest:
            raise ValueError(
                f"no grid from [{smallest}, {largest}] to [{lowest}, {highest}]: both ranges must "
                "ascend"
            )
        scale = (largest - smallest) / (highest - lowest)
        return cls(scale, lowest - smallest / scale, lowest, highest)

    @property
    def worst_error(self) -> float:
        """Return the worst error of a number within the range: half a step."""
        return self.scale / 2

    def quantise(self, values: FloatArray) -> npt.NDArray[np.int64]:
        """Return the nearest codes; numbers out of range get the outermost ones."""
        codes = np.rint(values / self.scale + self.zero_point)
        return np.clip(codes, self.lowest, self.highest).astype(np.int64)

    def restore(self, codes: npt.NDArray[np.int64]) -> FloatArray:
        """Return R = S (Q - Z)."""
        real: FloatArray = (codes.astype(np.float64) - self.zero_point) * self.scale
        return real
