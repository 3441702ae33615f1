"""A fuzzer's run: its budget, and the way back to the case that failed."""

import numpy as np
import pytest

from tests.fuzz.campaign import Budget, Failure, generator, run


def draw(rng: np.random.Generator) -> bytes:
    return rng.bytes(3)


def refuse_low(data: bytes) -> None:
    if data[0] < 8:
        raise ValueError("too low")


def test_a_budget_counts_cases_or_time() -> None:
    assert list(Budget(cases=3).numbers()) == [0, 1, 2]
    assert list(Budget().numbers()) == []
    assert len(list(Budget(minutes=0.0005).numbers())) > 10


def test_all_cases_are_checked() -> None:
    seen: list[bytes] = []
    assert run("made_up", draw, seen.append, 5, Budget(cases=40)) == 40
    assert len(set(seen)) > 30


def test_a_failure_names_the_case_that_fails_again_alone() -> None:
    with pytest.raises(Failure, match="too low") as caught:
        run("made_up", draw, refuse_low, 5, Budget(cases=1000))
    seed, case = str(caught.value).split("--seed ")[1].split(" --case ")
    assert draw(generator(int(seed), int(case)))[0] < 8
    with pytest.raises(Failure):
        run("made_up", draw, refuse_low, int(seed), Budget(cases=1), first=int(case))
