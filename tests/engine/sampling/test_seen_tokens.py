"""Counts of the tokens that a sequence has seen."""

import torch

from engine.sampling.seen_tokens import SeenTokens

CPU = torch.device("cpu")


def test_counts_go_on_where_the_last_step_ended() -> None:
    tokens = [1, 2, 2, 5]
    seen = SeenTokens(tokens, 4)
    assert seen.counts(8, CPU).tolist() == [0, 1, 1, 0, 0, 1, 0, 0]
    tokens += [2, 3]
    assert seen.counts(8, CPU).tolist() == [0, 1, 3, 2, 0, 1, 0, 0]
    tokens.append(3)
    for _ in range(2):
        assert seen.counts(8, CPU).tolist() == [0, 1, 3, 4, 0, 1, 0, 0]


def test_a_sequence_that_had_tokens_before_the_first_count_is_counted_whole() -> None:
    assert SeenTokens([1, 2, 2, 3, 3], 2).counts(5, CPU).tolist() == [0, 1, 3, 4, 0]
