"""A case that costs too much is a failure, however it hides."""

import resource
import signal

import numpy as np
import pytest

from tests.fuzz.campaign import Budget, Failure, run
from tests.fuzz.costs import MIB, Costs


def draw(rng: np.random.Generator) -> bytes:
    return rng.bytes(3)


def never_end(data: bytes) -> None:
    while data:
        try:
            sum(range(1000))
        except Exception:  # as a program may do
            continue


def fill(data: bytes) -> None:
    np.empty(64 * MIB)


def fill_much(data: bytes) -> None:
    """More than a process that has run other tests may have at hand."""
    np.empty(1024 * MIB)


def test_an_endless_case_is_ended_and_named() -> None:
    with pytest.raises(Failure, match=r"more than 0\.1 s of processor time\n.*\n.*--case 0"):
        run("made_up", draw, never_end, 5, Budget(cases=1), costs=Costs(cpu_s=0.1))


def test_a_case_that_takes_memory_is_named() -> None:
    with pytest.raises(Failure, match=r"MemoryError: .*8\.00 GiB"):
        run("made_up", draw, fill_much, 5, Budget(cases=1))
    assert run("made_up", draw, fill, 5, Budget(cases=1)) == 1


def test_the_bounds_end_with_the_case() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA), signal.getsignal(signal.SIGPROF)
    run("made_up", draw, lambda data: None, 5, Budget(cases=1))
    assert (resource.getrlimit(resource.RLIMIT_DATA), signal.getsignal(signal.SIGPROF)) == before
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
