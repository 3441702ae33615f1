"""Seeds of sequences."""

from servetwin.engine.sampling.sampling_params import new_seed, sample_seed


def test_the_first_sample_has_the_seed_and_the_others_seeds_of_their_own() -> None:
    seeds = [sample_seed(seed, sample) for seed in (-5, 0, 1, 2) for sample in range(128)]
    assert seeds[0] == -5
    assert len(set(seeds)) == len(seeds)


def test_a_new_seed_is_another_each_time() -> None:
    assert new_seed() != new_seed()
