"""Mixes of LoRA modules: shares, draws, and what cannot be."""

from collections import Counter

import pytest

from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.generators.lora_mix import LoraMix, parse_lora_mix


def test_shares_are_kept_and_the_rest_is_the_base_model() -> None:
    mix = parse_lora_mix("sql=0.3, chat=20%", 7)
    assert mix.shares == {"sql": 0.3, "chat": 0.2}
    counts = Counter(mix.module(f"r{number}") or "base" for number in range(10_000))
    for name, share in {"sql": 0.3, "chat": 0.2, "base": 0.5}.items():
        deviation = (share * (1 - share) / 10_000) ** 0.5
        assert abs(counts[name] / 10_000 - share) < 4 * deviation


def test_a_draw_is_of_the_seed_and_the_request_alone() -> None:
    drawn = [LoraMix({"a": 0.5}, 1).module(f"r{number}") for number in range(50)]
    assert drawn == [LoraMix({"a": 0.5}, 1).module(f"r{number}") for number in range(50)]
    assert drawn != [LoraMix({"a": 0.5}, 2).module(f"r{number}") for number in range(50)]


def test_shares_of_all_leave_nothing_for_the_base_model() -> None:
    mix = parse_lora_mix("a=0.1,b=0.2,c=0.7", 0)
    assert {mix.module(f"r{number}") or "base" for number in range(2000)} == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no module; NAME=SHARE"),
        ("a", "--lora-modules: 'a' is not NAME=SHARE"),
        ("a=", "a=: not a share above 0 and at most 1"),
        ("a=0", "a=0: not a share"),
        ("a=nan", "a=nan: not a share"),
        ("a=-1%", "a=-1%: not a share"),
        ("a=2", "a=2: not a share"),
        ("a=0.6,b=0.6", "the shares add up to 1.2, more than 1"),
    ],
)
def test_what_cannot_be_read_is_one_line(text: str, said: str) -> None:
    with pytest.raises(LoadTestError, match=r"^--lora-modules") as refused:
        parse_lora_mix(text, 0)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
