"""How often functions are called."""

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any


def calls_of(action: Callable[[], object]) -> Counter[str]:
    """Do something; return how often each function of that name was called, in Python or in C."""
    calls = Counter[str]()

    def count(frame: FrameType, event: str, called: Any) -> None:
        if event == "call":
            calls[frame.f_code.co_name] += 1
        elif event == "c_call":
            calls[called.__name__] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(before)
    return calls
