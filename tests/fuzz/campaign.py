"""Run one fuzzer: cases drawn from a seed within a budget, each checked, the first failure shown.

A fuzzer is a module with a ``draw`` and a ``check``; its test calls ``run`` with a fixed count, its
command line (``python -m tests.fuzz.NAME --minutes 10``) calls ``command_line``.
"""

import argparse
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from tests.fuzz.costs import Costs, TooCostly

Draw = Callable[[np.random.Generator], bytes]
"""Makes one input."""

Check = Callable[[bytes], None]
"""Raises where the program did wrong with an input."""

SHOWN_BYTES = 2000


class Failure(AssertionError):
    """An input that the program got wrong; the message holds the way to it."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How many cases are tried: so many, or those of so many minutes."""

    cases: int = 0
    minutes: float = 0.0

    def numbers(self) -> Iterator[int]:
        """Yield the numbers of the cases, until the budget is spent."""
        end_s = time.monotonic() + 60 * self.minutes
        number = 0
        while number < self.cases or time.monotonic() < end_s:
            yield number
            number += 1


def generator(seed: int, case: int) -> np.random.Generator:
    """Return the random numbers of one case, so that it can be drawn without those before it."""
    return np.random.default_rng([seed, case])


def run(
    name: str,
    draw: Draw,
    check: Check,
    seed: int,
    budget: Budget,
    first: int = 0,
    costs: Costs = Costs(),  # noqa: B008  # frozen
) -> int:
    """Check the cases of a budget from number ``first`` on; return how many there were.

    Raises ``Failure`` with the seed, the case and the input of the first that fails, or that costs
    more than ``costs``.
    """
    tried = 0
    for number in budget.numbers():
        case = first + number
        data = draw(generator(seed, case))
        try:
            with costs.bound():
                check(data)
        except (Exception, TooCostly) as error:
            raise Failure(_reproducer(name, seed, case, data, error)) from error
        tried += 1
    return tried


def _reproducer(name: str, seed: int, case: int, data: bytes, error: BaseException) -> str:
    return (
        f"{type(error).__name__}: {error}\n"
        f"input ({len(data)} bytes): {data[:SHOWN_BYTES]!r}\n"
        f"again: python -m tests.fuzz.{name} --seed {seed} --case {case}"
    )


def command_line(name: str, draw: Draw, check: Check) -> int:
    """Run a fuzzer as its command line asks; return the exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.fuzz.{name}")
    parser.add_argument("--minutes", type=float, default=0.0, help="how long to go on")
    parser.add_argument("--cases", type=int, default=1000, help="how many without --minutes")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), help="default: random")
    parser.add_argument("--case", type=int, help="only this one")
    asked = parser.parse_args()
    one = asked.case is not None
    budget = Budget(1 if one else 0 if asked.minutes else asked.cases, 0 if one else asked.minutes)
    sys.stdout.write(f"{name}: seed {asked.seed}\n")
    sys.stdout.flush()
    try:
        tried = run(name, draw, check, asked.seed, budget, asked.case or 0)
    except Failure as failure:
        sys.stdout.write(f"{failure}\n")
        return 1
    sys.stdout.write(f"{tried} cases, none failed\n")
    return 0
