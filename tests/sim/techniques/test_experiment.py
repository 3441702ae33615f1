"""The three loads of an experiment: the same requests, apart, at once, and as a stream."""

from itertools import pairwise

from servetwin.sim.techniques.technique import Experiment

EXPERIMENT = Experiment(prompt_tokens=100, output_tokens=20, alone=5, loaded=40, saturated=7)


def test_requests_alone_are_far_apart_and_saturated_ones_come_at_once() -> None:
    apart = [request.arrival_s for request in EXPERIMENT.one_at_a_time(1)]
    assert len(apart) == 5
    assert min(b - a for a, b in pairwise(apart)) >= 1e4
    assert [request.arrival_s for request in EXPERIMENT.all_at_once(1)] == [0.0] * 7


def test_a_steady_stream_has_the_share_of_the_sustained_rate() -> None:
    arrivals_s = [request.arrival_s for request in EXPERIMENT.steady(1, 10.0)]
    faster_s = [request.arrival_s for request in EXPERIMENT.steady(1, 20.0)]
    assert len(arrivals_s) == 40
    assert (arrivals_s[-1] - arrivals_s[0]) / (faster_s[-1] - faster_s[0]) == 2.0


def test_both_sides_draw_the_same_lengths_from_a_seed() -> None:
    lengths = [
        [(r.prompt_tokens, r.output_tokens) for r in EXPERIMENT.all_at_once(seed)]
        for seed in (1, 1, 2)
    ]
    assert lengths[0] == lengths[1] != lengths[2]


def test_shared_tokens_stand_before_every_prompt_in_whole_blocks() -> None:
    plain = EXPERIMENT.all_at_once(1)
    shared = Experiment(
        prompt_tokens=100, output_tokens=20, saturated=7, shared_tokens=64, samples=3
    ).all_at_once(1)
    for before, after in zip(plain, shared, strict=True):
        assert after.prompt_tokens == before.prompt_tokens + 64
        assert after.prefix_block_ids == (0, 1, 2, 3)
        assert after.samples == 3
