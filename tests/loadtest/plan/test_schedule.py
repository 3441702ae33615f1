"""The schedule: users, rounds, followers, and what the endpoint limits."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
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
from servetwin.loadtest.plan.looped import looped
from servetwin.loadtest.plan.request_dependencies import (
    begun_before,
    split_among,
    task_numbers,
)
from servetwin.loadtest.plan.schedule import build_schedule
from servetwin.loadtest.plan.users import with_users
from servetwin.sim.records.metrics import SLO
from servetwin.workloads.errors import LoadTestError, TraceError
from servetwin.workloads.generators.pauses import ExponentialPause, LognormalPause
from servetwin.workloads.graphs.repeats import Repeats
from servetwin.workloads.readers.native import write_trace
from servetwin.workloads.reading import read_trace
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.mock_load import GAPS_MS, paired_trace, trace_of


def test_the_schedule_is_sorted_and_ties_keep_their_order() -> None:
    schedule = build_schedule(trace_of(0.2, 0.1, 0.1, 0.0), Endpoint("http://h/v1", "m"))
    assert [(send.send_at_s, send.request.request_id) for send in schedule.roots] == [
        (0.0, "r3"),
        (0.1, "r1"),
        (0.1, "r2"),
        (0.2, "r0"),
    ]


def test_an_empty_trace_is_refused() -> None:
    with pytest.raises(LoadTestError, match=r"made\.jsonl: there is no request to send"):
        build_schedule(trace_of(), Endpoint("http://h/v1", "m"))


def test_users_come_round_again_with_prompts_of_their_own() -> None:
    made = with_users(paired_trace([1, 1, 1, 1]), 2)
    options = LoadOptions(concurrency=2, endless=True, duration_s=1.0)
    schedule = build_schedule(made, Endpoint("http://h/v1", "m", prompt="ids"), options)
    send, all_sent = schedule.roots[1], []
    for _ in range(5):
        all_sent.append(send)
        (send,) = schedule.ended(send, 0.0, answered=False)
    assert [s.request.request_id for s in all_sent] == ["r1", "r3", "r1+1", "r3+1", "r1+2"]
    assert not all_sent[1].body  # made once its turn has come
    assert len({schedule.made(s).body for s in all_sent}) == 5
    assert schedule.endless


@given(st.integers(1, 9), st.integers(0, 40), st.sampled_from([None, ExponentialPause(2.0)]))
def test_users_take_the_requests_in_turn(users: int, more: int, think: Any) -> None:
    trace = Trace(tuple(Request(f"r{n}", n / 7, 5, 3) for n in range(users + more)), "even.jsonl")
    made = with_users(trace, users, think=think, ramp_up_s=9.0, seed=3)
    by_id = {r.request_id: r for r in made}
    assert len(by_id) == len(trace)
    for number, request in enumerate(trace):
        asked = by_id[request.request_id]
        before = by_id[f"r{number - users}"] if number >= users else None
        assert asked.tenant == f"user-{number % users + 1}"
        assert asked.parent_ids == ((before.request_id,) if before else ())
        start_s = before.arrival_s + (asked.delay_s or 0) if before else number * 9.0 / users
        assert asked.arrival_s == pytest.approx(start_s, abs=2e-6)
    schedule = build_schedule(made, Endpoint("http://h/v1", "m"))
    roots = [send.request.request_id for send in schedule.roots]
    assert roots == [f"r{user}" for user in range(users)]
    assert schedule.waiting == more


def test_think_times_are_those_of_their_law() -> None:
    trace = Trace(tuple(Request(f"r{n}", 0.0, 5, 3) for n in range(4000)), "many.jsonl")
    made = with_users(trace, 10, think=ExponentialPause(2.0), seed=1)
    delays_s = np.array([r.delay_s for r in made], dtype=float)
    half_width_s = 4 * 2.0 / np.sqrt(len(made))
    assert abs(delays_s.mean() - 2.0) < half_width_s
    assert with_users(trace, 10, think=ExponentialPause(2.0), seed=1) == made
    assert with_users(trace, 10, think=ExponentialPause(2.0), seed=2) != made


def test_the_trace_of_users_is_one_that_can_be_read_again(tmp_path: Path) -> None:
    trace = paired_trace([10, 20, 30])
    made = with_users(trace, 2, think=LognormalPause(2.0))
    write_trace(made, tmp_path / "users.jsonl")
    read = read_trace(tmp_path / "users.jsonl")
    assert [replace(r, source_line=None) for r in read] == list(made)


def test_more_users_than_requests_are_refused() -> None:
    with pytest.raises(LoadTestError, match=r"--concurrency 3: pairs\.jsonl has 2 requests"):
        with_users(paired_trace([5]), 3)


@given(GAPS_MS, st.integers(1, 5))
def test_a_loop_keeps_counts_gaps_and_sharing(gaps_ms: list[int], times: int) -> None:
    trace = paired_trace(gaps_ms)
    again = looped(trace, times)
    rounds = [again.requests[n * len(trace) : (n + 1) * len(trace)] for n in range(times)]
    arrivals_s = np.array([[r.arrival_s for r in part] for part in rounds])
    assert np.allclose(np.diff(arrivals_s), np.diff(arrivals_s[0]))
    assert np.allclose(np.diff(arrivals_s, axis=0), trace.span_s + 1 / trace.rate_per_s)
    assert len({r.request_id for r in again}) == times * len(trace)
    assert len({r.prefix_block_ids for r in again}) == times * len({*range(0, len(trace), 2)})
    lengths = [[(r.prompt_tokens, r.output_tokens) for r in part] for part in rounds]
    assert lengths == [lengths[0]] * times
    known = {r.request_id for r in again}
    assert all(known.issuperset(r.parent_ids) for r in again)
    assert again.rate_per_s == pytest.approx(trace.rate_per_s)


def test_requests_that_all_come_at_once_cannot_be_looped() -> None:
    trace = Trace((Request("a", 0.0, 1, 1), Request("b", 0.0, 1, 1)), "ties.jsonl")
    with pytest.raises(LoadTestError, match=r"--loop 2: all requests of ties.jsonl arrive at once"):
        looped(trace, 2)


def test_answers_of_a_later_round_have_the_ids_that_its_prompts_repeat() -> None:
    trace = Trace(
        (
            Request("a", 0.0, 8, 8, (1, 2), 4, answer_block_ids=(3, 9)),
            Request("b", 1.0, 17, 1, (1, 2, 3, 9), 4),
        ),
        "made",
    )
    asked, after = (Repeats(trace).again(request, 1) for request in trace)
    assert asked.prefix_block_ids + asked.answer_block_ids == after.prefix_block_ids
    assert not set(after.prefix_block_ids) & {1, 2, 3, 9}


@given(GAPS_MS, st.integers(1, 5), st.booleans())
def test_shares_keep_families_together(gaps_ms: list[int], parts: int, closed: bool) -> None:
    trace = paired_trace(gaps_ms)
    shares = split_among(trace, parts, closed_loop=closed)
    assert sorted(r.request_id for s in shares for r in s) == sorted(r.request_id for r in trace)
    for share in shares:
        ids = {r.request_id for r in share}
        assert not closed or all(ids.issuperset(r.parent_ids) for r in share)
    sizes = [len({*task_numbers(share, closed_loop=closed).values()}) for share in shares]
    assert max(sizes) - min(sizes) <= 1


@given(GAPS_MS, st.floats(0, 30))
def test_a_duration_cuts_whole_families(gaps_ms: list[int], end_s: float) -> None:
    trace = paired_trace(gaps_ms)
    kept = begun_before(trace, end_s, closed_loop=True)
    expected = {r.request_id for r in trace if not r.parent_ids and r.arrival_s < end_s}
    expected |= {r.request_id for r in trace if expected.intersection(r.parent_ids)}
    assert {r.request_id for r in kept} == expected


def test_a_request_that_waits_for_itself_is_refused() -> None:
    requests = [Request(n, 0.0, 1, 1, parent_ids=(p,), delay_s=1.0) for n, p in ("ab", "ba")]
    with pytest.raises(TraceError, match=r"request 'a' waits for itself \(a -> b -> a\)"):
        split_among(Trace(tuple(requests), "cycle"), 1, closed_loop=True)


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
