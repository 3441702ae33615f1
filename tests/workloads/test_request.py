"""Requests made of columns are what the class makes, at less work."""

import copy
import pickle
import sys
from dataclasses import FrozenInstanceError, fields, replace
from types import FrameType
from typing import Any

import pytest

from servetwin.workloads.request import Request, requests_of, with_columns

FIELDS = fields(Request)
ROWS = [
    ("a", 0.5, 10, 20, (1, 2), 16, "s"),
    ("b", 1.5, 30, 40, (), None, None),
]


def made() -> list[Request]:
    return list(requests_of(zip(*ROWS, strict=True)))


def test_they_are_the_requests_of_the_class() -> None:
    wanted = [Request(*row) for row in ROWS]
    assert made() == wanted
    assert [type(request) for request in made()] == [Request, Request]
    assert [hash(request) for request in made()] == [hash(request) for request in wanted]
    assert [repr(request) for request in made()] == [repr(request) for request in wanted]
    assert made()[0].total_tokens == 30
    assert replace(made()[1], tenant="t") == replace(wanted[1], tenant="t")
    assert pickle.loads(pickle.dumps(made())) == copy.deepcopy(made()) == wanted


def test_a_request_of_four_columns_has_every_other_field_at_its_default() -> None:
    (request,) = requests_of([["a"], [0.0], [1], [2]])
    defaults = [getattr(request, field.name) for field in FIELDS[4:]]
    assert defaults == [field.default for field in FIELDS[4:]]


def test_they_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        made()[0].priority = 1  # type: ignore[misc]  # that is what must fail
    with pytest.raises(TypeError):
        list(requests_of([["a"], [0.0], [1]]))


def test_a_field_costs_one_assignment_and_no_call() -> None:
    """Such a call takes seven instructions, an assignment three."""
    instructions = 0

    def on_event(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal instructions
        frame.f_trace_opcodes = True
        instructions += event == "opcode"
        return on_event

    before = sys.gettrace()
    sys.settrace(on_event)
    try:
        list(requests_of([[value] * 100 for value in ROWS[0]]))
    finally:
        sys.settrace(before)
    assert 0 < instructions / 100 < 4 * len(FIELDS)


def test_other_columns_replace_those_of_the_same_name_alone() -> None:
    before = made()
    found = list(with_columns(before, arrival_s=[7.0, 8.0], delay_s=[None, 0.5]))
    assert found == [
        replace(before[0], arrival_s=7.0), replace(before[1], arrival_s=8.0, delay_s=0.5)
    ]  # fmt: skip
    assert [type(request) for request in found] == [Request, Request]
    assert before == made()
