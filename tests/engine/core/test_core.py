"""The core: exact stories on a fake clock, endings, refusals, cancellation, tokens."""

from dataclasses import replace
from typing import Any

import pytest

from servetwin.engine.core.messages import Abort, Add, Refused, TokenEvent, Update
from servetwin.engine.sampling.sampling_params import EOS_ID, SamplingParams
from servetwin.sim.experiments.decision_check import check_decisions
from tests.support.core_story import FIVE, DraftingExecutor, Script, Story, add, policy


def test_story_of_five_requests_under_static_batching() -> None:
    story = Story(policy(batching="static", kv="contiguous"), FIVE)
    assert story.steps() == [
        (0.0, True, [("a", 0, 3, 0), ("b", 0, 2, 1)]),  # b is padded to a's prompt
        (1.0, False, [("a", 3, 1, 0), ("b", 2, 0, 1)]),  # b has its one token: a dead row
        (2.0, False, [("a", 4, 1, 0), ("b", 2, 0, 1)]),
        (3.0, False, [("c", 0, 1, 1), ("d", 0, 2, 0)]),
        (4.0, False, [("c", 1, 1, 0), ("d", 2, 1, 0)]),
        (11.0, True, [("e", 0, 1, 0)]),  # alone: after the wait limit of 2 s
    ]
    assert [len(story.tokens(name)) for name in "abcde"] == [3, 1, 2, 2, 1]


def test_story_of_five_requests_under_chunked_prefill() -> None:
    story = Story(policy(batching="chunked", kv="paged"), FIVE)
    assert story.steps() == [
        (0.0, True, [("a", 0, 3, 0), ("b", 0, 1, 0)]),  # the budget of 4 cuts b's prompt
        (1.0, False, [("a", 3, 1, 0), ("b", 1, 1, 0)]),
        (2.0, False, [("a", 4, 1, 0), ("c", 0, 1, 0)]),
        (3.0, False, [("c", 1, 1, 0), ("d", 0, 2, 0)]),
        (4.0, False, [("d", 2, 1, 0)]),
        (9.0, True, [("e", 0, 1, 0)]),
    ]
    assert [len(story.tokens(name)) for name in "abcde"] == [3, 1, 2, 2, 1]


@pytest.mark.parametrize(
    ("params", "chosen", "text", "reason"),
    [
        ({}, [65, 66, 67, 68], "ABCD", "length"),
        ({}, [65, EOS_ID], "A", "stop"),
        ({}, [65, 66, 67, EOS_ID], "ABC", "stop"),
        ({"ignore_eos": True}, [65, EOS_ID, 66, 67], "ABC", "length"),
        ({"min_tokens": 3}, [65, EOS_ID, 66, EOS_ID], "AB", "stop"),
        ({"eos_ids": (66, 67)}, [65, EOS_ID, 67], "AC", "stop"),
        ({"stop": ("BC",)}, [65, 66, 67], "A", "stop"),
        ({"stop": ("BC",)}, [65, 66, 68, 69], "ABDE", "length"),
        ({"stop": ("BC", "A")}, [65], "", "stop"),
        ({"stop": ("CD",)}, [65, 66, 67, 68], "AB", "stop"),
        ({"stop": ("DX",)}, [65, 66, 67, 68], "ABCD", "length"),
        ({"stop": ("B",), "min_tokens": 3}, [65, 66, 67, 66], "ABC", "stop"),
        ({"stop": ("BX",)}, [65, 66, EOS_ID], "AB", "stop"),
        ({}, [65, 0xC3, 0xA9, 0xC3], "Aé\ufffd", "length"),
    ],
)
def test_how_an_output_ends(
    params: dict[str, Any], chosen: list[int], text: str, reason: str
) -> None:
    script = [(0.0, add("a", 2, 4, **params))]
    story = Story(policy(), script, choose=lambda token_ids: chosen[len(token_ids) - 2])
    tokens = story.tokens("a")
    assert [event.token_id for event in tokens] == chosen
    assert story.text("a", SamplingParams(4, **params)) == text
    assert [event.finish_reason for event in tokens] == [None] * (len(chosen) - 1) + [reason]
    assert story.core.unfinished == 0
    assert story.core.stats().kv_usage == 0


@pytest.mark.parametrize("batching", ["static", "continuous"])
def test_an_early_end_in_a_batch_leaves_the_others_alone(batching: str) -> None:
    def choose(token_ids: list[int]) -> int:
        return EOS_ID if token_ids[0] == 2 else 300

    early = Add("early", [2, 2], SamplingParams(5))
    story = Story(policy(batching=batching), [(0.0, early), (0.0, add("late", 2, 3))], choose)
    assert [event.finish_reason for event in story.tokens("early")] == ["stop"]
    assert [event.finish_reason for event in story.tokens("late")] == [None, None, "length"]


@pytest.mark.parametrize(
    ("changes", "requests", "refused"),
    [
        ({}, [add("a", 30, 3)], [("a", "too_long")]),
        ({"kv_tokens": 8}, [add("a", 8, 2)], [("a", "too_long")]),
        ({"kv_tokens": 8}, [add("a", 8, 1)], []),
        (
            {"queue_limit": 1, "max_seqs": 1},
            [add(name, 1, 1) for name in "abc"],
            [("c", "queue_full")],
        ),
    ],
)
def test_refusals(
    changes: dict[str, Any], requests: list[Add], refused: list[tuple[str, str]]
) -> None:
    story = Story(policy(**changes), [(0.0, request) for request in requests])
    found = [event for event in story.events if isinstance(event, Refused)]
    assert [(event.request_id, event.kind) for event in found] == refused
    finished = {event.request_id for event in story.events if isinstance(event, TokenEvent)}
    assert finished == {r.request_id for r in requests} - {name for name, _ in refused}
    assert story.core.unfinished == 0


@pytest.mark.parametrize("batching", ["static", "continuous"])
@pytest.mark.parametrize("kv", ["contiguous", "paged"])
@pytest.mark.parametrize(
    ("max_seqs", "abort_s"), [(1, 0.5), (2, 0.5), (2, 3.5)], ids=["waiting", "early", "late"]
)
def test_an_aborted_request_says_nothing_more_and_frees_its_memory(
    batching: str, kv: str, max_seqs: int, abort_s: float
) -> None:
    script: Script = [
        (0.0, add("stays", 6, 4)),
        (0.0, add("gone", 5, 9)),
        (abort_s, Abort("gone")),
    ]
    story = Story(policy(batching=batching, kv=kv, max_seqs=max_seqs), script)
    computed_s = [
        record.now_s
        for record in story.log.records
        for name, _, tokens, _ in record.entries
        if name == "gone" and tokens
    ]
    assert all(now_s < abort_s for now_s in computed_s)
    assert len(story.tokens("gone")) <= len(computed_s)
    assert [event.finish_reason for event in story.tokens("stays")] == [None, None, None, "length"]
    assert story.core.unfinished == 0
    last = story.updates[-1].stats
    assert (last.running, last.waiting, last.kv_usage) == (0, 0, 0.0)


def test_abort_of_the_only_request_tells_that_memory_is_empty() -> None:
    script: Script = [(0.0, add("a", 4, 20)), (2.5, Abort("a"))]
    story = Story(policy(), script)
    assert len(story.tokens("a")) == 3
    assert story.updates[-2].stats.kv_usage > 0
    assert story.updates[-1] == Update([], story.core.stats())
    assert story.updates[-1].stats.kv_usage == 0


def test_abort_of_an_unknown_or_ended_request_changes_nothing() -> None:
    script: Script = [
        (0.0, add("a", 1, 1)),
        (5.0, Abort("a")),
        (6.0, Abort("unknown")),
    ]
    story = Story(policy(), script)
    assert len(story.tokens("a")) == 1
    assert story.core.stats().steps == 1


def test_prefix_hits_are_counted_once_per_request_and_told_with_its_tokens() -> None:
    script = [(0.0, add("a", 9, 2)), (10.0, add("b", 9, 2))]
    story = Story(policy(prefix_cache=True), script)
    assert [event.cached_tokens for event in story.tokens("a")] == [0, 0]
    assert [event.cached_tokens for event in story.tokens("b")] == [8, 8]
    stats = story.core.stats()
    assert (stats.prefix_queries, stats.prefix_hits) == (18, 8)


def test_preempted_sequences_keep_their_tokens() -> None:
    config = policy(kv_tokens=16, max_seqs=2)
    story = Story(config, [(0.0, add("a", 4, 10)), (0.0, add("b", 4, 10))])
    assert story.core.stats().preemptions == 1
    expected = [300 + 4 + step for step in range(10)]
    for name in "ab":
        assert [event.token_id for event in story.tokens(name)] == expected


class Accepting(DraftingExecutor):
    """Two drafts a pass: after an even number of tokens both are accepted, else none."""

    accepted = (2, 0)


DRAFTED = policy(draft_rows=2, token_budget=32)


def test_several_tokens_of_a_pass_are_events_of_one_step() -> None:
    story = Story(DRAFTED, [(0.0, add("a", 2, 7))], executor=Accepting)
    assert story.steps() == [
        (0.0, True, [("a", 0, 2, 0)]),
        (1.0, False, [("a", 2, 3, 0)]),  # three tokens are known: no draft is accepted
        (2.0, False, [("a", 3, 3, 0)]),
        (3.0, False, [("a", 6, 3, 0)]),
        (4.0, False, [("a", 7, 3, 0)]),  # eight are known: one of three tokens was still asked
    ]
    assert [event.token_id for event in story.tokens("a")] == list(range(302, 309))
    assert [len(update.events) for update in story.updates] == [1, 1, 3, 1, 1]
    assert story.tokens("a")[-1].finish_reason == "length"
    assert [record.drafts for record in story.log.records] == [
        [], [("a", 2, 0)], [("a", 2, 2)], [("a", 2, 0)], [("a", 2, 2)],
    ]  # fmt: skip
    stats = story.core.stats()
    assert (stats.draft_passes, stats.drafted_tokens, stats.accepted_tokens) == (4, 8, 4)
    assert (stats.running, stats.kv_usage) == (0, 0)


@pytest.mark.parametrize(
    ("params", "chosen", "text", "reason"),
    [
        ({}, [65, 66, EOS_ID, 67, 68], "AB", "stop"),
        ({"stop": ("BC",)}, [65, 66, 67, 68, 69], "A", "stop"),
        ({"ignore_eos": True}, [65, 66, EOS_ID, 67, 68], "ABCD", "length"),
        ({"min_tokens": 4}, [65, 66, EOS_ID, EOS_ID, 67], "AB", "stop"),
    ],
)
def test_a_pass_is_cut_where_its_sequence_ends(
    params: dict[str, Any], chosen: list[int], text: str, reason: str
) -> None:
    """The first token is of the prompt, the next three of one pass; two more would be asked."""

    class AllAccepted(DraftingExecutor):
        accepted = (2,)

    script = [(0.0, add("a", 2, 5, **params)), (0.0, add("b", 3, 4, ignore_eos=True))]
    story = Story(DRAFTED, script, lambda ids: [*chosen, 70, 71][len(ids) - 2], AllAccepted)
    assert story.text("a", SamplingParams(5, **params)) == text
    assert story.tokens("a")[-1].finish_reason == reason
    assert len(story.tokens("b")) == 4
    assert story.core.stats().kv_usage == 0


def test_an_abort_between_two_passes_leaves_the_others_where_they_are() -> None:
    script: Script = [(0.0, add("a", 2, 9)), (0.0, add("b", 3, 9)), (1.5, Abort("a"))]
    story = Story(DRAFTED, script, executor=Accepting)
    assert [event.token_id for event in story.tokens("b")] == list(range(303, 312))
    assert 0 < len(story.tokens("a")) < 9
    assert story.core.stats().kv_usage == 0


def test_the_replayed_log_of_drafts_gives_the_same_decisions() -> None:
    class Erratic(DraftingExecutor):
        accepted = (2, 0, 1, 1, 0)

    script = [(0.4 * i, add(f"r{i}", 1 + i % 5, 1 + 3 * i % 11)) for i in range(12)]
    for config in (DRAFTED, replace(DRAFTED, kv="contiguous", reservation="exact")):
        log = Story(config, script, executor=Erratic).log
        found = check_decisions(log.arrivals, config, log.records)
        assert found.identical, (found.engine, found.simulator)
        others = [replace(record, drafts=[]) for record in log.records]
        assert not check_decisions(log.arrivals, config, others).identical
