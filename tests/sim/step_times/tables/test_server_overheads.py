"""Overheads of a server: which terms there are, their bounds, and what is shipped."""

import pytest

from servetwin.policies.batch import BatchShape
from servetwin.sim.step_times.step_time import ApiLatency
from servetwin.sim.step_times.tables import KernelTable, LoadedTable
from servetwin.sim.step_times.tables.server_overheads import (
    MOST_S,
    ServerOverheads,
    fitted_overheads,
    overheads_of,
    parse_overheads,
)
from servetwin.workloads.errors import ProfileError
from tests.support.made_kernels import MadeKernels

TABLE = KernelTable(MadeKernels(), "made")


def test_terms_are_given_in_seconds() -> None:
    found = parse_overheads("step_s=0.002, prefill_row_s=2e-6", None)
    assert found == ServerOverheads(step_s=0.002, prefill_row_s=2e-6)
    assert found.described() == "overheads: step_s 2 ms, prefill_row_s 0.002 ms (given)"
    assert ServerOverheads().described() == "overheads: none (given)"


def test_terms_of_requests_and_tokens_are_latency_of_the_api() -> None:
    found = ServerOverheads(request_s=0.01, prompt_token_s=1e-5, chunk_s=0.001, step_s=0.005)
    assert found.api().model() == ApiLatency(0.01, 1e-5, 0.001)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("fited", "--overheads: 'fited' is not fitted or NAME=VALUE"),
        ("step_ms=1", "no term 'step_ms'; did you mean 'step_s'?"),
        ("step_s=fast", "step_s: 'fast' is not a number; it must be 0 to 0.01 seconds"),
        ("step_s=0.001,step_s=0.002", "--overheads: step_s is given twice; give it once"),
        ("step_s=1", "step_s: 1 is not possible; it must be 0 to 0.01 seconds"),
        ("sequence_s=-1e-5", "sequence_s: -1e-05 is not possible; it must be 0 to 0.0001 seconds"),
        ("most_chunks=0", "most_chunks: 0 is not possible; it must be 1 or more"),
        ("factor=9", "factor: 9 is not possible; it must be 0.3 to 3"),
        ("most_chunks=few", "most_chunks: 'few' is not a number; it must be 1 or more"),
        ("request_s=nan", "request_s: nan is not possible; it must be 0 to 0.1 seconds"),
    ],
)
def test_what_is_no_overhead_is_refused_with_key_value_and_what_would_be_right(
    text: str, says: str
) -> None:
    with pytest.raises(ProfileError) as error:
        parse_overheads(text, "vllm")
    assert says in str(error.value)


def test_every_bound_itself_is_possible() -> None:
    assert overheads_of(MOST_S).step_s == MOST_S["step_s"]


def test_shipped_overheads_say_what_they_were_fitted_on() -> None:
    found = fitted_overheads("vllm")
    assert found.prefill_chunk_s > 0
    assert "no physics: vllm 0.18 to 0.19; another version moves TTFT" in found.described()
    assert "(9 in 10 of 54 pairs)" in found.source
    assert "the server is" not in fitted_overheads("vllm", "0.19.1").source
    older = fitted_overheads("vllm", "0.16.2")
    assert "vllm 0.15 to 0.17" in older.source
    assert older.prefill_chunk_s > found.prefill_chunk_s
    assert fitted_overheads("vllm", "0.11").source.endswith("the server is 0.11")
    assert fitted_overheads("vllm", "nightly-5b8").source.endswith("the server is nightly-5b8")


def test_a_factor_is_of_the_kernels_alone() -> None:
    slower = LoadedTable(TABLE, parse_overheads("factor=1.5,step_s=0.002", None))
    shape = BatchShape(8, 8 * 513, 8)
    assert slower.seconds(shape) == pytest.approx(1.5 * TABLE.seconds(shape) + 0.002)
    assert slower.scaled(2).seconds(shape) == pytest.approx(2 * slower.seconds(shape))
    assert slower.scaled(2).summary()[-1] == "overheads: step_s 2 ms, factor 1.5 (given)"


def test_no_more_chunks_of_a_step_count_than_were_said() -> None:
    few = parse_overheads("prefill_chunk_s=0.01,most_chunks=3", None)
    assert few.described() == "overheads: prefill_chunk_s 10 ms, most_chunks 3 (given)"
    for chunks in (2, 3, 8):
        shape = BatchShape(0, 0, 0, ((0, 10),) * chunks)
        added_s = LoadedTable(TABLE, few).seconds(shape) - TABLE.seconds(shape)
        assert added_s[0] == pytest.approx(0.01 * min(3, chunks))


@pytest.mark.parametrize("backend", ["triton", None])
def test_a_backend_without_fitted_overheads_is_refused(backend: str | None) -> None:
    with pytest.raises(ProfileError, match="there are some for --times kernels:vllm"):
        fitted_overheads(backend)
