"""Little address space ends a command in one line, before OpenBLAS waits for memory for ever."""

import mmap
import sys

import pytest

from servetwin.address_space import RoomForImports


def test_a_package_without_room_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    finder = RoomForImports()
    finder.find_spec("numpy")

    def no_room(*_: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", no_room)
    finder.find_spec("json")
    finder.find_spec("numpy.linalg")  # It is there already.
    finder.find_spec("scipy")  # It loads nothing large itself.
    with pytest.raises(MemoryError, match="no room for scipy"):
        finder.find_spec("scipy.special")
    with pytest.raises(MemoryError, match="no room for pandas"):
        finder.find_spec("pandas")
    assert finder not in sys.meta_path
