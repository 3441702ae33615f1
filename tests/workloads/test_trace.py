"""A trace: requests as columns are the requests that they were made of."""

import copy
import pickle
import sys
import tracemalloc
from dataclasses import FrozenInstanceError, fields, replace
from itertools import repeat
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.workloads.block_ids import BlockIds
from servetwin.workloads.generators.arrivals import PoissonArrivals
from servetwin.workloads.generators.generate import WorkloadSpec, generate
from servetwin.workloads.generators.lengths import FixedTokens, IndependentLengths
from servetwin.workloads.request import Request
from servetwin.workloads.trace import as_columns, column

ANY = st.lists(
    st.builds(
        Request,
        request_id=st.text(max_size=3),
        arrival_s=st.floats(0, 1e9),
        prompt_tokens=st.integers(1, 2**31 - 1),
        output_tokens=st.integers(1, 2**31 - 1),
        prefix_block_ids=st.one_of(
            st.lists(st.integers(0, 99), max_size=3).map(tuple),
            st.lists(st.integers(0, 99), max_size=3).map(BlockIds.of),
        ),
        block_tokens=st.sampled_from((None, 16)),
        parent_ids=st.lists(st.text(max_size=2), max_size=2).map(tuple),
        delay_s=st.one_of(st.none(), st.floats(0, 9)),
        priority=st.integers(-3, 3),
        modal=st.sampled_from((None, {"images": 2})),
        prompt=st.one_of(st.none(), st.just(({"role": "user", "content": "hello"},))),
    ),
    max_size=6,
)


@given(ANY)
def test_they_are_the_requests_they_were_made_of(requests: list[Request]) -> None:
    columns = as_columns(requests)
    assert columns == tuple(requests)
    assert tuple(requests) == columns
    assert [columns[place] for place in range(-len(requests), len(requests))] == 2 * requests
    assert list(columns[1:]) == requests[1:]
    assert pickle.loads(pickle.dumps(columns)) == columns
    assert as_columns(columns) is columns
    for name in ("arrival_s", "prompt_tokens", "delay_s", "priority", "prefix_block_ids"):
        values = [getattr(request, name) for request in requests]
        assert column(requests, name).tolist() == column(columns, name).tolist() == values


@given(ANY)
def test_some_of_them_are_taken_by_a_mask_or_by_places(requests: list[Request]) -> None:
    columns, arrivals_s = as_columns(requests), column(requests, "arrival_s")
    assert columns[arrivals_s > 1e5] == [each for each in requests if each.arrival_s > 1e5]
    in_order = columns[np.argsort(arrivals_s, kind="stable")]
    assert in_order == sorted(requests, key=lambda each: each.arrival_s)


def test_what_is_made_is_a_request() -> None:
    wanted = Request("a", 0.5, 10, 20, (1, 2), 16, "s")
    (made,) = as_columns([wanted])
    assert type(made) is Request
    assert (hash(made), made.total_tokens) == (hash(wanted), 30)
    assert replace(made, tenant="t") == replace(wanted, tenant="t")
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == wanted
    with pytest.raises(FrozenInstanceError):
        made.priority = 1  # type: ignore[misc]  # that is what must fail


def test_a_field_costs_one_assignment_and_no_call() -> None:
    """Such a call takes seven instructions, an assignment three."""
    instructions = 0

    def on_event(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal instructions
        frame.f_trace_opcodes = True
        instructions += event == "opcode"
        return on_event

    columns = as_columns([Request("a", 0.0, 1, 1)] * 100)
    before = sys.gettrace()
    sys.settrace(on_event)
    try:
        list(columns)
    finally:
        sys.settrace(before)
    assert 0 < instructions / 100 < 4 * len(fields(Request)) + 20


def test_other_columns_replace_those_of_the_same_name_alone() -> None:
    before = [Request("a", 0.5, 10, 20), Request("b", 1.5, 30, 40)]
    found = as_columns(before).with_columns(arrival_s=[7.0, 8.0], delay_s=[None, 0.5])
    assert found == [
        replace(before[0], arrival_s=7.0), replace(before[1], arrival_s=8.0, delay_s=0.5)
    ]  # fmt: skip


def test_values_are_those_of_python() -> None:
    request = as_columns([Request("a", 1, 2, 3, priority=4)])[0]
    assert [type(value) for value in (request.arrival_s, request.prompt_tokens)] == [float, int]
    assert type(request.priority) is int


def test_fields_with_nothing_but_defaults_take_no_room() -> None:
    columns = as_columns([Request("a", 0.0, 1, 1), Request("b", 1.0, 1, 1, tenant="t")])
    assert columns.columns.keys() == {
        "request_id", "arrival_s", "prompt_tokens", "output_tokens", "tenant"
    }  # fmt: skip


def test_one_value_may_be_that_of_all() -> None:
    columns = as_columns([Request("a", 0.0, 1, 1), Request("b", 1.0, 1, 1)])
    changed = columns.with_columns(block_tokens=repeat(16), arrival_s=repeat(0.0))
    assert [(r.block_tokens, r.arrival_s) for r in changed] == [(16, 0.0), (16, 0.0)]
    assert columns[0].block_tokens is None


def test_equal_requests_have_one_hash_as_columns_or_not() -> None:
    listed = tuple(Request(str(n), float(n), 4, 2) for n in range(3))
    held = as_columns(listed)
    assert held == listed
    assert {held: "columns"}[as_columns(listed)] == "columns"
    assert hash(held) == hash(listed)


def test_a_place_that_is_not_there_is_an_index_error() -> None:
    with pytest.raises(IndexError):
        as_columns([Request("a", 0.0, 1, 1)])[1]
    assert len(as_columns([])) == 0


def test_a_generated_request_takes_100_bytes() -> None:
    lengths = IndependentLengths(FixedTokens(8), FixedTokens(8))
    spec = WorkloadSpec(20_000, PoissonArrivals(1.0), lengths)
    generate(spec, 0)
    tracemalloc.start()
    try:
        trace = generate(spec, 0)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(trace) == 20_000
    assert taken < 110 * 20_000
