"""Requests longer than the server's context."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.loadtest.body.options import BodyOptions
from servetwin.loadtest.endpoint import Endpoint
from servetwin.loadtest.options import LoadOptions, parse_cancellation
from servetwin.loadtest.plan.endpoint_limits import (
    check_times,
    with_an_output,
    within_context,
    without_outputs,
)
from servetwin.sim.records.metrics import SLO
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace


def endpoint_of(context: int | None) -> Endpoint:
    return Endpoint("http://h/v1", "m", max_model_len=context)


SHARED = Request("c", 2.0, 80, 40, (1, 2, 3, 4, 5), 16, shared_prefix_tokens=70)
LONG = Trace((Request("a", 0.0, 60, 40), Request("b", 1.0, 90, 20), SHARED), "long.jsonl")


def test_nothing_is_too_long_where_the_context_is_not_known() -> None:
    assert within_context(LONG, endpoint_of(None), None) is LONG
    assert within_context(LONG, endpoint_of(120), None) is LONG


def test_too_long_requests_want_a_decision() -> None:
    with pytest.raises(LoadTestError) as caught:
        within_context(LONG, endpoint_of(100), None)
    assert str(caught.value) == (
        "2 of 3 requests are longer than the server's context of 100 tokens (the longest has 120); "
        "--on-too-long drop leaves them out, --on-too-long clip shortens them"
    )


def test_too_long_requests_are_left_out() -> None:
    kept = within_context(LONG, endpoint_of(100), "drop")
    assert [request.request_id for request in kept] == ["a"]
    assert kept.notes == ("2 requests beyond 100 tokens dropped",)


def test_too_long_requests_are_shortened() -> None:
    kept = within_context(LONG, endpoint_of(100), "clip")
    lengths = [(request.prompt_tokens, request.output_tokens) for request in kept]
    assert lengths == [(60, 40), (80, 20), (60, 40)]
    assert kept.requests[2].prefix_block_ids == (1, 2, 3, 4)
    assert kept.requests[2].shared_prefix_tokens == 60
    assert kept.notes == ("2 requests shortened to 100 tokens",)


@given(prompt=st.integers(1, 10_000), output=st.integers(1, 10_000), context=st.integers(2, 5_000))
def test_what_is_shortened_fits_and_loses_no_more_than_it_must(
    prompt: int, output: int, context: int
) -> None:
    trace = Trace((Request("a", 0.0, prompt, output),), "one")
    (kept,) = within_context(trace, endpoint_of(context), "clip")
    assert 1 <= kept.prompt_tokens <= prompt
    assert 1 <= kept.output_tokens <= output
    assert kept.total_tokens == min(context, prompt + output)
    assert kept.output_tokens >= min(output, context // 2)


WHOLE = Endpoint("http://a/v1", "m", options=BodyOptions(whole=True))
VECTORS = Endpoint("http://a/v1", "m", api="embeddings")
STREAM = Endpoint("http://a/v1", "m")
LEAVES = LoadOptions(cancellation=parse_cancellation("share=0.5,after=5tokens"))
LEAVES_LATER = LoadOptions(cancellation=parse_cancellation("share=0.5,after=1s"))


@pytest.mark.parametrize(
    ("endpoint", "load", "slo", "predicted", "said"),
    [
        (WHOLE, LoadOptions(), SLO(ttft_s=1.0), False, "--slo and --no-stream: TTFT and TPOT are"),
        (WHOLE, LoadOptions(), SLO(1.0, 1.0, 1.0), False, "--slo and --no-stream"),
        (VECTORS, LoadOptions(), SLO(tpot_s=1.0), False, "--slo and --api embeddings"),
        (WHOLE, LEAVES, None, False, "--cancel and --no-stream: no tokens to count"),
        (VECTORS, LoadOptions(), None, True, "--against and --api embeddings: predictions are of"),
    ],
)
def test_what_needs_tokens_one_by_one_is_refused(
    endpoint: Endpoint, load: LoadOptions, slo: SLO | None, predicted: bool, said: str
) -> None:
    with pytest.raises(LoadTestError) as refused:
        check_times(endpoint, load, slo, predicted=predicted)
    assert str(refused.value).startswith(said)
    check_times(STREAM, load, slo, predicted=predicted)


def test_what_is_defined_may_be_wanted() -> None:
    check_times(WHOLE, LEAVES_LATER, SLO(e2e_s=1.0), predicted=True)
    check_times(VECTORS, LEAVES_LATER, SLO(e2e_s=1.0), predicted=False)


def test_outputs_go_and_come_back_as_one_token() -> None:
    trace = Trace((Request("a", 0.0, 7, 5, answer="x"), Request("b", 1.0, 7, 9)), "t")
    without = without_outputs(trace)
    assert [(r.output_tokens, r.answer) for r in without] == [(0, None)] * 2
    assert [r.output_tokens for r in with_an_output(without)] == [1, 1]
    assert with_an_output(trace) == trace
