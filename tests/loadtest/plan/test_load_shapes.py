"""What a load test sends, before it is sent: traces repeated, users, families, options, texts."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.scenario.distribution_specs import arrivals_of, lengths_of, think_time_of
from app.scenario.load_options import LoadChoice
from app.scenario.trace_options import TraceShape
from app.scenario.workload_distributions import DEFAULT_PROMPT, ArrivalChoice
from loadtest.endpoint import Endpoint
from loadtest.http.exchange import Exchange, Failure
from loadtest.options import Cancellation, HangUp, LoadOptions, parse_cancellation
from loadtest.plan.repeats import looped
from loadtest.plan.request_dependencies import begun_before, roots_and_followers, split_among
from loadtest.plan.schedule import build_schedule, expected_peak_tokens_per_s
from loadtest.plan.users import with_users
from loadtest.run.retrying_client import retry_after_s, retry_wait_s
from loadtest.run.worker_pool import processes_for
from workloads.errors import LoadTestError, TraceError
from workloads.generators.pauses import ExponentialPause, LognormalPause
from workloads.native import write_trace
from workloads.reading import read_trace
from workloads.request import Request
from workloads.trace import Trace

GAPS_S = st.lists(st.integers(0, 5_000), min_size=1, max_size=12).filter(any)


def trace_of(gaps_ms: list[int]) -> Trace:
    """Pairs of requests share a prefix block; the second of a pair follows the first."""
    arrivals_s = np.cumsum([0, *gaps_ms]) / 1000
    requests = [
        Request(
            f"r{n}",
            at_s,
            20 + n,
            3,
            prefix_block_ids=(n // 2,),
            block_tokens=16,
            session_id=f"s{n // 2}",
            parent_id=f"r{n - 1}" if n % 2 else None,
            delay_s=0.25 if n % 2 else None,
        )
        for n, at_s in enumerate(arrivals_s.tolist())
    ]
    return Trace(tuple(requests), "pairs.jsonl")


@given(GAPS_S, st.integers(1, 5))
def test_a_loop_keeps_counts_gaps_and_sharing(gaps_ms: list[int], times: int) -> None:
    trace = trace_of(gaps_ms)
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
    assert all(r.parent_id is None or r.parent_id in known for r in again)
    assert again.rate_per_s == pytest.approx(trace.rate_per_s)


@settings(max_examples=20)
@given(GAPS_S, st.sampled_from([0.1, 0.5, 1.0, 3.0]))
def test_a_time_scale_scales_every_gap(gaps_ms: list[int], factor: float) -> None:
    trace = trace_of(gaps_ms)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("workloads.reading.read_trace", lambda *_, **__: trace)
        scaled = LoadChoice(Path("pairs.jsonl"), time_scale=factor).trace()
    gaps = [np.diff([r.arrival_s for r in each]) for each in (trace, scaled)]
    assert np.allclose(gaps[1], factor * gaps[0])
    assert [r.delay_s and r.delay_s / factor for r in scaled] == [r.delay_s for r in trace]


def test_requests_that_all_come_at_once_cannot_be_looped() -> None:
    trace = Trace((Request("a", 0.0, 1, 1), Request("b", 0.0, 1, 1)), "ties.jsonl")
    with pytest.raises(LoadTestError, match=r"--loop 2: all requests of ties.jsonl arrive at once"):
        looped(trace, 2)


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
        assert asked.parent_id == (before.request_id if before else None)
        start_s = before.arrival_s + (asked.delay_s or 0) if before else number * 9.0 / users
        assert asked.arrival_s == pytest.approx(start_s, abs=2e-6)
    roots, followers = roots_and_followers(made, closed_loop=True)
    assert [r.request_id for r in roots] == [f"r{user}" for user in range(users)]
    assert sum(map(len, followers.values())) == more


def test_think_times_are_those_of_their_law() -> None:
    trace = Trace(tuple(Request(f"r{n}", 0.0, 5, 3) for n in range(4000)), "many.jsonl")
    made = with_users(trace, 10, think=ExponentialPause(2.0), seed=1)
    delays_s = np.array([r.delay_s for r in made], dtype=float)
    half_width_s = 4 * 2.0 / np.sqrt(len(made))
    assert abs(delays_s.mean() - 2.0) < half_width_s
    assert with_users(trace, 10, think=ExponentialPause(2.0), seed=1) == made
    assert with_users(trace, 10, think=ExponentialPause(2.0), seed=2) != made


def test_the_trace_of_users_is_one_that_can_be_read_again(tmp_path: Path) -> None:
    trace = trace_of([10, 20, 30])
    made = with_users(trace, 2, think=LognormalPause(2.0))
    write_trace(made, tmp_path / "users.jsonl")
    read = read_trace(tmp_path / "users.jsonl")
    assert [replace(r, source_line=None) for r in read] == list(made)


def test_more_users_than_requests_are_refused() -> None:
    with pytest.raises(LoadTestError, match=r"--concurrency 3: pairs\.jsonl has 2 requests"):
        with_users(trace_of([5]), 3)


@given(GAPS_S, st.integers(1, 5), st.booleans())
def test_shares_keep_families_together(gaps_ms: list[int], parts: int, closed: bool) -> None:
    trace = trace_of(gaps_ms)
    shares = split_among(trace, parts, closed_loop=closed)
    assert sorted(r.request_id for s in shares for r in s) == sorted(r.request_id for r in trace)
    for share in shares:
        ids = {r.request_id for r in share}
        assert not closed or all(r.parent_id in ids for r in share if r.parent_id)
    sizes = [len(roots_and_followers(share, closed_loop=closed)[0]) for share in shares]
    assert max(sizes) - min(sizes) <= 1


@given(GAPS_S, st.floats(0, 30))
def test_a_duration_cuts_whole_families(gaps_ms: list[int], end_s: float) -> None:
    trace = trace_of(gaps_ms)
    kept = begun_before(trace, end_s, closed_loop=True)
    expected = {r.request_id for r in trace if not r.parent_id and r.arrival_s < end_s}
    expected |= {r.request_id for r in trace if r.parent_id in expected}
    assert {r.request_id for r in kept} == expected


def test_a_request_that_waits_for_itself_is_refused() -> None:
    requests = [Request(n, 0.0, 1, 1, parent_id=p, delay_s=1.0) for n, p in ("ab", "ba")]
    with pytest.raises(LoadTestError, match="request 'a' waits for itself, by way of 'b'"):
        roots_and_followers(Trace(tuple(requests), "cycle"), closed_loop=True)


def test_users_come_round_again_with_prompts_of_their_own() -> None:
    made = with_users(trace_of([1, 1, 1, 1]), 2)
    options = LoadOptions(concurrency=2, endless=True, duration_s=1.0)
    schedule = build_schedule(made, Endpoint("http://h/v1", "m", prompt="ids"), options)
    send, told = schedule.roots[1], []
    for _ in range(5):
        told.append(send)
        (send,) = schedule.after(send)
    assert [s.request.request_id for s in told] == ["r1", "r3", "r1+1", "r3+1", "r1+2"]
    assert len({s.body for s in told}) == 5
    assert not schedule.exhausted


def test_users_are_shared_out_by_how_much_they_can_read() -> None:
    made = with_users(Trace(tuple(Request(f"r{n}", 0, 5, 900) for n in range(50)), "t"), 5)
    options = LoadOptions(concurrency=5)
    assert expected_peak_tokens_per_s(made, options) == 500
    assert processes_for(made, options) == 1
    assert processes_for(made, LoadOptions(concurrency=5, processes=9)) == 5


# Cancellation and retries


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("share=0.1,after=5tokens", Cancellation(0.1, HangUp(after_tokens=5))),
        ("after=1token, share=1", Cancellation(1.0, HangUp(after_tokens=1))),
        ("share=.5,after=200ms", Cancellation(0.5, HangUp(after_s=0.2))),
        ("share=.5,after=2s", Cancellation(0.5, HangUp(after_s=2.0))),
    ],
)
def test_cancellation_as_people_write_it(text: str, expected: Cancellation) -> None:
    assert parse_cancellation(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "--cancel: '' is not share=P or after=N"),
        ("share=0.1", "needs share and after"),
        ("after=5tokens", "needs share and after"),
        ("share=0.1,after=5tokens,when=now", "unknown part 'when=now'"),
        *((f"share={s},after=1s", f"share '{s}' is not above 0") for s in ("0", "1.1", "x", "-1")),
        *(
            (f"share=1,after={a}", f"after '{a}': not in tokens, ms or s")
            for a in ("5", "0tokens", "0ms", "1h", "", "-5ms")
        ),
    ],
)
def test_cancellation_that_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(LoadTestError) as caught:
        parse_cancellation(text)
    assert message in str(caught.value)
    assert "write for example share=0.1,after=5tokens" in str(caught.value)


def test_the_share_is_drawn_by_request_and_by_nothing_else() -> None:
    def hits(seed: int) -> list[bool]:
        options = LoadOptions(cancellation=Cancellation(0.3, HangUp(after_tokens=1)), seed=seed)
        return [options.hang_up(f"r{n}") is not None for n in range(3000)]

    hit = hits(7)
    assert abs(np.mean(hit) - 0.3) < 4 * np.sqrt(0.3 * 0.7 / len(hit))
    assert hits(7) == hit
    assert hits(8) != hit


NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "wait_s"),
    [
        ("3", 3.0),
        (" 0 ", 0.0),
        ("Sat, 21 Nov 2026 12:00:07 GMT", 7.0),
        ("Sat, 21 Nov 2026 13:00:07 +0100", 7.0),
        ("Sat, 21 Nov 2026 11:59:00 GMT", 0.0),
        ("soon", None),
        ("-3", None),
        ("", None),
    ],
)
def test_retry_after_in_seconds_and_as_a_date(text: str, wait_s: float | None) -> None:
    assert retry_after_s(text, NOW) == wait_s


@pytest.mark.parametrize(("attempt", "longest_s"), [(1, 0.5), (2, 1.0), (5, 8.0), (9, 30.0)])
def test_the_backoff_doubles_up_to_a_limit(attempt: int, longest_s: float) -> None:
    exchange = Exchange(failure=Failure("connect", "refused"), attempts=attempt)
    rng = np.random.default_rng(0)
    waits_s = np.array([retry_wait_s(exchange, rng) for _ in range(400)])
    assert waits_s.min() >= longest_s / 2
    assert waits_s.max() <= longest_s
    assert abs(waits_s.mean() - 0.75 * longest_s) < 4 * longest_s / 2 / np.sqrt(12 * 400)


# Laws as texts, and the options of the command


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("poisson", {"name": "poisson"}),
        ("gamma:cv=2", {"name": "gamma", "cv": 2.0}),
        ("mmpp2:on=3,off=7", {"name": "mmpp2", "on_s": 3.0, "off_s": 7.0}),
        ("clients:clients=9", {"name": "clients", "clients": 9}),
        ("ramp:from=1,to=9,steps=3", {"name": "ramp", "from_per_s": 1, "to_per_s": 9, "steps": 3}),
    ],
)
def test_arrivals_as_people_write_them(text: str, fields: dict[str, Any]) -> None:
    assert arrivals_of(text, ArrivalChoice()) == replace(ArrivalChoice(), **fields)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("512", {"name": "fixed", "mean_tokens": 512.0}),
        ("lognormal", {}),
        ("uniform:mean=9,cv=0.2,max=11", {"name": "uniform", "mean_tokens": 9, "cv": 0.2,
                                          "max_tokens": 11}),
        ("zipf:exponent=2,max=99", {"name": "zipf", "zipf": 2.0, "max_tokens": 99}),
    ],
)  # fmt: skip
def test_lengths_as_people_write_them(text: str, fields: dict[str, Any]) -> None:
    assert lengths_of(text, DEFAULT_PROMPT, "--x") == replace(DEFAULT_PROMPT, **fields)


@pytest.mark.parametrize(
    ("text", "law"),
    [
        ("2", LognormalPause(2.0, 0.0)),
        ("exponential:mean=0.5", ExponentialPause(0.5)),
        ("lognormal:median=3,sigma=1", LognormalPause(3.0, 1.0)),
    ],
)
def test_think_times_as_people_write_them(text: str, law: Any) -> None:
    assert think_time_of(text) == law


def test_a_fixed_think_time_is_fixed() -> None:
    sample = think_time_of("1.5").sample(5, np.random.default_rng(0))
    assert sample.tolist() == pytest.approx([1.5] * 5)


@pytest.mark.parametrize("steps", ["", ",steps=4"])
def test_a_ramp_has_the_arrivals_of_its_line(steps: str) -> None:
    """The expected count up to t: 2 t + t^2 / 10 on the line from 2/s to 8/s over 30 s."""
    counts = []
    for seed in range(40):
        choice = LoadChoice(arrivals=f"ramp:from=2,to=8{steps}", duration_s=30.0, seed=seed)
        arrivals_s = [r.arrival_s for r in choice.trace()]
        counts.append([sum(at_s < end_s for at_s in arrivals_s) for end_s in (15.0, 30.0)])
    expected = {"": (52.5, 150.0), ",steps=4": (45.0, 150.0)}[steps]
    for found, wanted in zip(np.mean(counts, axis=0), expected, strict=True):
        assert abs(found - 1 - wanted) < 4 * np.sqrt(wanted / 40) + 0.5  # the first is at 0


@given(
    st.sampled_from(["poisson", "gamma:cv=2", "constant", "mmpp2:on=1,off=1"]), st.integers(0, 9)
)
@settings(max_examples=15)
def test_generated_loads_end_with_the_duration_and_come_again(law: str, seed: int) -> None:
    choice = LoadChoice(arrivals=law, rate_per_s=20.0, duration_s=5.0, seed=seed)
    trace = choice.trace()
    assert trace == LoadChoice(**choice.record()).trace()
    assert trace.requests[-1].arrival_s < 5.0
    short = LoadChoice(arrivals=law, rate_per_s=20.0, limit=7, seed=seed).trace()
    assert len(short) == 7


def test_a_constant_load_is_what_it_says() -> None:
    choice = LoadChoice(
        arrivals="constant", rate_per_s=4.0, duration_s=1.0, prompt_tokens="8", output_tokens="3"
    )
    found = [(r.arrival_s, r.prompt_tokens, r.output_tokens) for r in choice.trace()]
    assert found == [(0.0, 8, 3), (0.25, 8, 3), (0.5, 8, 3), (0.75, 8, 3)]


TRACE = Path("t.jsonl")
BAD: list[tuple[dict[str, Any], str]] = [
    ({}, "nothing to send: give --trace FILE, --arrivals LAW --rate R, or --concurrency N"),
    ({"path": TRACE, "arrivals": "poisson"}, "--arrivals and --trace exclude each other"),
    ({"concurrency": 2, "arrivals": "poisson"}, "--arrivals and --concurrency exclude each other"),
    ({"arrivals": "poisson", "rate_per_s": 2.0}, "the load has no end: give --duration S or"),
    ({"concurrency": 2}, "the load has no end: give --duration S or --limit N"),
    ({"concurrency": 2, "limit": 9, "rate_per_s": 2.0}, "--concurrency: how fast users send is up"),
    ({"concurrency": 2, "path": TRACE, "time_scale": 2.0}, "--concurrency: how fast users send"),
    ({"concurrency": 2, "limit": 9, "closed_loop": False}, "--open-loop and --concurrency exclude"),
    ({"path": TRACE, "think_time": "2"}, "--think-time and --ramp-up are of users"),
    ({"path": TRACE, "ramp_up_s": 2.0}, "--think-time and --ramp-up are of users"),
    ({"path": TRACE, "prompt_tokens": "5"}, "--prompt-tokens and --output-tokens are of a gen"),
    (
        {"path": TRACE, "rate_per_s": 1.0, "time_scale": 2.0},
        "--rate, --rate-scale and --time-scale",
    ),
    ({"path": TRACE, "time_scale": 0.0}, "--time-scale 0: must be above 0"),
    ({"path": TRACE, "time_scale": float("nan")}, "--time-scale nan: must be above 0"),
    ({"path": TRACE, "limit": 0}, "--limit 0: must be at least 1 request"),
    ({"arrivals": "poisson", "limit": 3, "rate_per_s": 1.0, "loop": 2}, "--loop and scales are of"),
    (
        {"arrivals": "poisson", "limit": 3, "rate_per_s": 1.0, "shape": TraceShape(start_s=1.0)},
        "--start, --end, --loop and scales are of a trace: give --trace as well",
    ),
    ({"arrivals": "poisson", "limit": 3}, "--arrivals poisson: wants --rate R, in requests/s"),
    ({"arrivals": "ramp:from=1,to=2", "limit": 3}, "--arrivals ramp: wants --duration S"),
    (
        {"arrivals": "ramp:from=1,to=2", "duration_s": 3.0, "rate_per_s": 1.0},
        "--arrivals ramp has rates of its own: leave --rate out",
    ),
    ({"path": TRACE, "duration_s": 0.0}, "duration 0 s: must be above 0"),
    ({"path": TRACE, "duration_s": float("nan")}, "duration nan s: must be above 0"),
    ({"path": TRACE, "warm_up_s": 5.0, "duration_s": 5.0}, "warm-up 5 s: must be 0 or more, and"),
    ({"path": TRACE, "warm_up_s": float("nan")}, "warm-up nan s: must be 0 or more"),
    ({"path": TRACE, "drain_s": -1.0}, "drain -1 s: must be 0 or more"),
    ({"path": TRACE, "retries": -1}, "retries and seed must be 0 or more"),
    ({"path": TRACE, "cancel": "half"}, "--cancel: 'half' is not share=P or after=N"),
    ({"concurrency": 2, "limit": 9, "ramp_up_s": float("nan")}, "--ramp-up nan: must be 0 s"),
]


def made(**fields: Any) -> tuple[LoadOptions, Trace]:
    choice = LoadChoice(**fields)
    return choice.options(), choice.trace()


@pytest.mark.parametrize(("fields", "message"), BAD)
def test_bad_loads_are_one_line(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(LoadTestError) as caught:
        made(**fields)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: arrivals_of("gama", ArrivalChoice()),
            "--arrivals: unknown arrival process 'gama'; did you mean",
        ),
        (
            lambda: arrivals_of("gamma:cvs=2", ArrivalChoice()),
            "--arrivals gamma: unknown setting 'cvs'; did you mean 'cv'?",
        ),
        (
            lambda: arrivals_of("poisson:cv=2", ArrivalChoice()),
            "--arrivals poisson: unknown setting 'cv'; it takes none",
        ),
        (
            lambda: arrivals_of("gamma:cv=much", ArrivalChoice()),
            "--arrivals gamma: cv: 'much' is not a number",
        ),
        (
            lambda: arrivals_of("ramp:from=1,to=2,steps=2.5", ArrivalChoice()),
            "--arrivals ramp: steps: '2.5' is not a whole number",
        ),
        (
            lambda: arrivals_of("ramp:from=1", ArrivalChoice()).process(),
            "--arrivals ramp: wants two rates, such as ramp:from=1,to=10",
        ),
        (
            lambda: arrivals_of("ramp:from=1,to=2,steps=1", ArrivalChoice()).process(),
            "--arrivals ramp: a staircase has at least 2 steps, not 1",
        ),
        (
            lambda: arrivals_of("ramp:from=0,to=0", ArrivalChoice()).process(),
            "rates of a ramp must be 0 or positive, one positive, not 0 and 0",
        ),
        (
            lambda: lengths_of("0", DEFAULT_PROMPT, "--x").distribution(),
            "the fixed length must be a pos",
        ),
        (
            lambda: lengths_of("zipf", DEFAULT_PROMPT, "--x").distribution(),
            "zipf lengths want a largest",
        ),
        (lambda: think_time_of("exponential"), "wants its mean, such as exponential:mean=2"),
        (lambda: think_time_of("-2"), "the median think time must be a positive number, not -2"),
    ],
)
def test_bad_laws_are_one_line(make: Any, message: str) -> None:
    with pytest.raises(TraceError) as caught:
        make()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
