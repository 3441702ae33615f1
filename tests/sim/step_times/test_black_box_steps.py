"""Steps read off client stamps are the steps that ran, with what they computed."""

from dataclasses import replace

import numpy as np
import pytest

from servetwin.policies.batch import BatchShape
from servetwin.policies.config import PolicyConfig
from servetwin.sim.step_times.black_box_fit import chunk_spread_s, fit_black_box
from servetwin.sim.step_times.black_box_steps import (
    ObservedRequest,
    StepInterval,
    observed_steps,
    pieces,
    read_intervals,
)
from servetwin.sim.step_times.profile import ApiLatencyFit, Profile, StepTimeFit
from servetwin.workloads.errors import ProfileError
from servetwin.workloads.request import Request
from tests.support.simulated_sender import SimulatedSender

pytestmark = pytest.mark.slow

CHUNKED = PolicyConfig(batching="chunked", token_budget=100, max_seqs=8)
RUNNER = ObservedRequest(0.0, 10, (1.0, 2.0, 3.0, 5.0, 8.0, 9.0))


def shapes(
    answers: list[ObservedRequest], config: PolicyConfig = CHUNKED
) -> list[tuple[float, object]]:
    return [
        (round(i.seconds, 9), i.shapes)
        for i in read_intervals(answers, config)
        if not i.first_token
    ]


def decodes(*contexts: int, chunks: tuple[tuple[int, int], ...] = ()) -> BatchShape:
    return BatchShape(len(contexts), sum(contexts), len(contexts), chunks)


def test_a_lone_runner_shows_every_step_and_its_context() -> None:
    (first, *others) = read_intervals([RUNNER], CHUNKED)
    assert first == StepInterval((decodes(chunks=((0, 10),)),), 1.0, first_token=True)
    assert [i.seconds for i in others] == [1.0, 1.0, 2.0, 3.0, 1.0]
    assert [i.shapes for i in others] == [(decodes(11 + j),) for j in range(5)]


def test_a_prompt_that_joins_is_computed_beside_the_decode() -> None:
    newcomer = ObservedRequest(2.1, 50, (5.05, 8.05))
    assert shapes([RUNNER, newcomer])[2:4] == [
        (2.0, (decodes(13, chunks=((0, 50),)),)),
        (3.0, (decodes(14, 51),)),
    ]


def test_a_prompt_longer_than_the_budget_is_cut_to_what_the_decode_leaves() -> None:
    newcomer = ObservedRequest(1.1, 120, (5.05, 8.05))
    assert shapes([RUNNER, newcomer])[:4] == [
        (1.0, (decodes(11),)),
        (1.0, (decodes(12, chunks=((0, 99),)),)),
        (2.0, (decodes(13, chunks=((99, 21),)),)),
        (3.0, (decodes(14, 121),)),
    ]


def test_a_pause_of_the_decodes_is_a_step_of_the_newcomer_alone() -> None:
    config = replace(CHUNKED, batching="prefill-first")
    newcomer = ObservedRequest(2.1, 120, (4.0, 5.05))
    found = shapes([RUNNER, newcomer], config)
    assert found[2] == (1.0, (decodes(chunks=((0, 100),)), decodes(chunks=((100, 20),))))


def test_what_could_be_two_things_is_left_out() -> None:
    """While B waits, unseen parts of its prompt may be in the steps of A."""
    waiting = [ObservedRequest(1.1, 150, (8.05, 9.05)), ObservedRequest(1.2, 150, (9.06,))]
    read = [seconds for seconds, _ in shapes([RUNNER, *waiting])]
    assert read == [1.0]


def test_tokens_that_come_late_do_not_shift_the_steps_after_them() -> None:
    late = ObservedRequest(0.0, 10, (1.01, 2.01, 3.6, 5.01, 8.01, 9.01))
    assert [sorted(step.stamps_s) for step in observed_steps([RUNNER, late])][-3:] == [[0, 1]] * 3


@pytest.mark.parametrize(
    ("rows", "budget", "cut"),
    [(10, 100, [(5, 10)]), (200, 100, [(5, 100), (105, 100)]), (201, 100, [(205, 1)])],
)
def test_pieces(rows: int, budget: int, cut: list[tuple[int, int]]) -> None:
    assert pieces((5, rows), budget)[-len(cut) :] == cut


TRUTH = {
    "constant": 0.004,
    "decode_sequences": 0.0003,
    "prefill_chunks": 0.0002,
    "rows_from_0": 0.0001,
    "rows_from_8": 0.0002,
    "rows_from_64": 0.0004,
    "decode_context_tokens": 1e-6,
    "prefill_pairs": 2e-7,
    "prefill_context_tokens": 1e-6,
}
API = ApiLatencyFit(request_s=0.002, chunk_s=0.001)


def quiet(config: PolicyConfig) -> SimulatedSender:
    """A server whose steps take exactly what the truth says, with clients that are never late."""
    profile = Profile(
        name="truth",
        origin="computed from data sheets",
        machine={},
        engine={},
        policies=config.as_dict(),
        layouts={"paged": StepTimeFit(coefficients=TRUTH)},
        api=API,
    )
    return SimulatedSender(config, profile, jitter_s=0.0)


def random_burst(rng: np.random.Generator, number: int) -> list[Request]:
    size = int(rng.integers(1, 12))
    prompts, outputs = rng.integers(1, 250, size), rng.integers(1, 30, size)
    at_s = np.sort(rng.choice([0.0, 0.0, *rng.uniform(0, 0.3, 4)], size))
    rows = zip(prompts.tolist(), outputs.tolist(), at_s.tolist(), strict=True)
    return [Request(f"{number}-{i}", at, p, n) for i, (p, n, at) in enumerate(rows)]


@pytest.mark.parametrize("max_seqs", [4, 16])
@pytest.mark.parametrize("batching", ["continuous", "chunked", "prefill-first", "static"])
def test_what_is_read_is_what_was_computed(batching: str, max_seqs: int) -> None:
    """Every interval lasts as long as the true model says its steps do."""
    config = PolicyConfig(batching=batching, token_budget=64, max_seqs=max_seqs)
    send, rng = quiet(config), np.random.default_rng(5)
    model = StepTimeFit(coefficients=TRUTH).model()
    read = steps = 0
    for number in range(60):
        answers = send(random_burst(rng, number), 60.0).answers
        steps += len(observed_steps(answers))
        for interval in read_intervals(answers, config):
            lasted_s = sum(float(model.seconds(shape)[0]) for shape in interval.shapes)
            if interval.first_token:
                lasted_s += API.request_s + API.chunk_s
            if interval.waited:
                lasted_s += config.wait_limit_s
            assert interval.seconds == pytest.approx(lasted_s, abs=2e-9), interval
            read += 1
    assert read > 0.5 * steps


def test_the_fit_of_a_quiet_server_is_the_truth() -> None:
    config = PolicyConfig(batching="chunked", token_budget=256, max_seqs=16)
    send, rng = quiet(config), np.random.default_rng(6)
    bursts = [send(random_burst(rng, number), 60.0).answers for number in range(80)]
    found = fit_black_box([[i for a in bursts for i in read_intervals(a, config)]])
    fitted, truth = StepTimeFit.of(found.fit).model(), StepTimeFit(coefficients=TRUTH).model()
    for shape in (decodes(50), decodes(*[100] * 8), decodes(20, 30, chunks=((0, 200),))):
        assert fitted.seconds(shape)[0] == pytest.approx(truth.seconds(shape)[0], rel=0.01)
    assert found.first_token_s == pytest.approx(0.003, abs=3e-4)
    assert found.fit.held_out_error < 0.01


def test_rows_beyond_those_seen_cost_what_those_before_them_did() -> None:
    config = PolicyConfig(batching="chunked", token_budget=128, max_seqs=16)
    send, rng = quiet(config), np.random.default_rng(6)
    bursts = [send(random_burst(rng, number), 60.0).answers for number in range(80)]
    found = fit_black_box([[i for a in bursts for i in read_intervals(a, config)]])
    model = StepTimeFit.of(found.fit).model()
    twice, once = (float(model.seconds(decodes(chunks=((0, n),)))[0]) for n in (400, 200))
    assert twice - once > 200 * 0.0003
    assert found.fit.ranges["rows_from_128"] == 0


def test_the_order_of_a_steps_tokens_tells_what_each_sequence_adds() -> None:
    at_once = [ObservedRequest(0.0, 10, tuple(k + 1e-3 * i for k in range(1, 6))) for i in range(8)]
    alone = [ObservedRequest(0.0, 10, (1.0, 2.0, 3.0))]
    assert chunk_spread_s([at_once, alone]) == pytest.approx(0.5e-3, rel=0.01)


def test_too_few_intervals_are_refused() -> None:
    with pytest.raises(ProfileError, match="5 measured steps are too few"):
        fit_black_box([read_intervals([RUNNER], CHUNKED)[1:]])
