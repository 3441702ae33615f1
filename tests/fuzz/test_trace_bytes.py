"""The fuzzer of trace bytes, for a fixed number of cases."""

from tests.fuzz import trace_bytes
from tests.fuzz.campaign import Budget, run


def test_traces_are_read_or_refused() -> None:
    run("trace_bytes", trace_bytes.draw, trace_bytes.check, seed=15, budget=Budget(cases=150))
