"""Notes on classes for the compiler, mypyc; in pure Python they change nothing.

A compiled class cannot be derived from in Python unless it has
``@mypyc_attr(allow_interpreted_subclasses=True)``: plug-ins derive from the classes that have it.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

if not TYPE_CHECKING:
    Class = TypeVar("Class")

    def mypyc_attr(**_: bool) -> Callable[[type[Class]], type[Class]]:
        """Leave the class as it is."""
        return lambda cls: cls

    class IntSequence:
        """Lets C find the items of a compiled sequence by their places, as ``bisect`` does."""

        def __getitem__(self, place: int) -> int:
            raise NotImplementedError

        def __len__(self) -> int:
            raise NotImplementedError
else:
    from mypy_extensions import mypyc_attr as mypyc_attr

    IntSequence = Sequence[int]
    """The base of a compiled sequence: of ``Sequence``, all sequences would be instances of it."""
