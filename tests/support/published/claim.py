"""One figure as the notes print it, beside what is computed here."""

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

Number = float | str
_ABOUT = 0.1
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Claim:
    """A row of a table: ``printed`` in the notes, ``here`` computed, ``why`` they differ.

    ``printed`` is a figure with the digits that it is printed with, ``A to B``, ``about A`` (within
    a tenth), ``up to A``, or a text. ``why`` is a key of ``ERRORS`` or a sentence.
    """

    what: str
    printed: str
    here: Number
    why: str = ""

    @property
    def agrees(self) -> bool:
        """Return whether ``here`` is what is printed, in the digits that are printed."""
        if isinstance(self.here, str):
            return self.here == self.printed
        words = self.printed.replace(",", "").split()
        match words:
            case ["up", "to", most]:
                return self.here <= float(most)
            case [least, "to", most]:
                return float(least) <= self.here <= float(most)
            case ["about", figure]:
                return abs(self.here / float(figure) - 1) <= _ABOUT
            case [figure]:
                return _rounds_to(self.here, figure)
        return False


def _rounds_to(number: float, printed: str) -> bool:
    try:
        exponent = Decimal(printed).as_tuple().exponent
    except InvalidOperation:
        return False
    digits = exponent if isinstance(exponent, int) else 0
    room = 0.5 * 10.0**digits
    return abs(number - float(printed)) <= room * (1 + _ROUNDING)
