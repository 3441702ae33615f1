"""What a sequence says of itself, outside a lockstep group and as a sample."""

from servetwin.policies.sequence import Sequence, Siblings
from tests.support.scheduler_steps import sequence


def test_a_prompt_is_computed_until_it_yields_a_token() -> None:
    seq = sequence("a", 10, 2)
    assert (seq.computed_tokens, seq.total_tokens) == (0, 10)
    seq.base_computed_tokens = 6
    assert (seq.computed_tokens, seq.generated_tokens, seq.total_tokens) == (6, 0, 10)
    seq.base_computed_tokens, seq.base_generated_tokens = 10, 1
    assert (seq.computed_tokens, seq.total_tokens) == (10, 11)
    assert not seq.finished
    seq.base_computed_tokens, seq.base_generated_tokens = 11, 2
    assert seq.finished
    assert repr(seq) == "Sequence('a', 11 of 10+2 tokens computed)"


def test_a_shortened_prompt_is_what_was_computed_and_the_rest_is_generated() -> None:
    seq = sequence("a", 10, 2)
    seq.base_computed_tokens = 6
    seq.shorten_prompt()
    assert (seq.total_tokens, seq.generated_tokens, seq.final_kv_tokens) == (6, -4, 11)
    seq.base_generated_tokens = 1
    assert not seq.finished
    seq.base_generated_tokens = 2
    assert seq.finished


def test_a_prompt_of_which_nothing_was_computed_stays_as_it_is() -> None:
    seq = sequence("a", 10, 2)
    seq.shorten_prompt()
    assert (seq.total_tokens, seq.generated_tokens) == (10, 0)


def test_the_last_token_is_never_fed_back() -> None:
    assert sequence("a", 10, 3).final_kv_tokens == 12


def test_a_stopped_sequence_has_finished_whatever_was_declared() -> None:
    seq = sequence("a", 10, 5)
    seq.stop()
    assert seq.finished


def test_the_estimate_is_the_declared_length_unless_given() -> None:
    assert sequence("a", 4, 7).estimated_tokens == 7
    assert sequence("a", 4, 7, estimated_tokens=0).estimated_tokens == 0


def test_a_sample_is_the_same_request_and_holds_nothing() -> None:
    seq = Sequence(
        "a", 1.5, 10, 5, [1, 2], 3, key_blocks=2, number=7, samples=3, tenant="t",
        estimated_tokens=4, deadline_s=9.0,
    )  # fmt: skip
    seq.siblings = Siblings(seq)
    assert seq.siblings.left == 3
    seq.base_computed_tokens, seq.base_generated_tokens = 10, 1
    child = seq.fork()
    same = ("request_id", "arrival_s", "prompt_tokens", "max_tokens", "block_keys", "priority",
            "key_blocks", "number", "tenant", "estimated_tokens", "deadline_s", "siblings",
            "generated_tokens")  # fmt: skip
    assert [getattr(child, name) for name in same] == [getattr(seq, name) for name in same]
    assert (child.samples, child.computed_tokens, child.blocks) == (1, 0, [])
