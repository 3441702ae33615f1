"""Whether an exception says that memory has run out. Free of torch."""

from traceback import clear_frames

_SIGNS = ("defaultcpuallocator", "out of memory", "not enough memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory for tensors, on the CPU or a GPU, could not be had."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(sign in text for sign in _SIGNS)


def let_go(error: BaseException) -> None:
    """Free the tensors that the frames of an exception hold: the next try needs their room."""
    clear_frames(error.__traceback__)
