"""The settings of policies: what is possible, and how an impossible one is refused."""

from typing import Any

import pytest

from servetwin.policies.config import PolicyConfig, Rounding
from servetwin.workloads.errors import PolicyError

ODD: list[object] = [1e308, 2.5, "x", 10**400, []]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kv_tokens": 0}, "kv_tokens: 0 is not possible; it must be at least 1"),
        ({"kv_tokens": 8}, "kv_tokens: 8 is not possible; it must be at least one block"),
        ({"max_seqs": 0}, "max_seqs: 0 is not possible; it must be at least 1"),
        ({"token_budget": -1}, "token_budget: -1 is not possible; it must be at least 1"),
        *(
            (
                {"max_seqs": odd},
                f"max_seqs: {odd!r} is not possible; it must be a whole number, at most "
                "1,000,000,000,000,000",
            )
            for odd in ODD
        ),
        *(
            (
                {"wait_limit_s": odd},
                f"wait_limit_s: {odd!r} is not possible; it must be a number from 0 to "
                "1,000,000,000,000,000",
            )
            for odd in (float("nan"), 10**400, "1", -1.0)
        ),
        *(
            (
                {"watermark": odd},
                f"watermark: {odd!r} is not possible; it must be at least 0 and below 1",
            )
            for odd in (10**400, "1", None)
        ),
        (
            {"reservation": "half"},
            "reservation: 'half' is not possible; it must be one of max, pow2, exact",
        ),
        (
            {"queue_order": "priorty"},
            "queue_order: 'priorty' is not possible; did you mean 'priority'?",
        ),
        (
            {"prompt_blocks": "chunks"},
            "prompt_blocks: 'chunks' is not possible; did you mean 'chunk'?",
        ),
        (
            {"watermark_rounding": "nearest"},
            "watermark_rounding: 'nearest' is not possible; it must be one of up, down",
        ),
        (
            {"budget_count": "tokens"},
            "budget_count: 'tokens' is not possible; it must be one of rows, padded",
        ),
        (
            {"one_row_chunk": "chunk"},
            "one_row_chunk: 'chunk' is not possible; it must be one of decode, prefill",
        ),
        (
            {"recompute": "chunk"},
            "recompute: 'chunk' is not possible; it must be one of all, computed",
        ),
        (
            {"recompute": "computed", "prefix_cache": True},
            "recompute: 'computed' is not possible; it must be all with prefix_cache or batching: "
            "unified, where no prompt is cut short",
        ),
        (
            {"recompute": "computed", "batching": "unified"},
            "recompute: 'computed' is not possible; it must be all with prefix_cache or batching: "
            "unified, where no prompt is cut short",
        ),
        (
            {"rounding_waste": "none"},
            "rounding_waste: 'none' is not possible; it must be one of internal, external",
        ),
        (
            {"token_budget": 8, "max_seqs": 9},
            "token_budget: 8 is not possible; it must be at least max_seqs (9): a step feeds every "
            "running sequence",
        ),
        (
            {"kv": "contiguous", "prefix_cache": True},
            "prefix_cache: true is not possible; it must be false with kv: contiguous",
        ),
    ],
)
def test_impossible_settings_are_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        PolicyConfig(**settings)  # type: ignore[arg-type]
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"draft_rows": 3, "batching": "insertion"}, "batching: unified, continuous, chunked"),
        ({"long_prefill_tokens": 64, "batching": "chunked"}, "batching: unified"),
        ({"decodes_between_prefills": 2}, "batching: prefill-first"),
        ({"padding": False}, "batching: static"),
        ({"reservation": "exact"}, "kv: contiguous"),
        ({"kv_groups": "window:64"}, "kv: grouped"),
    ],
)
def test_a_setting_that_no_policy_reads_is_refused(settings: dict[str, Any], named: str) -> None:
    name, value = next(iter(settings.items()))
    kind, reader = named.split(": ")
    with pytest.raises(PolicyError) as caught:
        PolicyConfig(**settings)
    actual = getattr(PolicyConfig(), kind) if kind not in settings else settings[kind]
    shown = {False: "false"}.get(value, repr(value))
    assert str(caught.value) == (
        f"{name}: {shown} would change nothing: only {named} reads it, not {actual}; leave it out"
    )
    assert getattr(PolicyConfig(**{**settings, kind: reader.split(", ")[0]}), name) == value
    assert getattr(PolicyConfig(**{**settings, kind: "mine.py:Mine"}), name) == value


def test_a_change_of_policies_leaves_out_what_they_do_not_read() -> None:
    base = PolicyConfig(draft_rows=3, kv="contiguous", reservation="exact")
    assert base.changed(batching="static", kv="paged") == PolicyConfig(batching="static")
    with pytest.raises(PolicyError, match="draft_rows: 2 would change nothing"):
        base.changed(batching="static", draft_rows=2)


@pytest.mark.parametrize(
    "least",
    [
        {"kv_tokens": 1, "block_tokens": 1},
        {"kv_tokens": 4, "block_tokens": 4},
        {"max_seqs": 1, "token_budget": 1, "max_model_len": 1},
        {"queue_limit": 0, "queued_tokens_limit": 0},
        {"wait_limit_s": 0.0},
        {"shed_ttft_s": 0.0},
        {"watermark": 0.0},
        {"watermark": 0.999},
        {"kv": "grouped", "kv_groups": "window:16,kept:1"},
        {"batching": "static", "max_seqs": 9, "token_budget": 1},
        {"batching": "insertion", "max_seqs": 9, "token_budget": 1},
        {"batching": "chunked", "max_seqs": 2, "draft_rows": 3, "token_budget": 8},
        {"batching": "unified", "draft_rows": 3, "long_prefill_tokens": 4},
        {"prefix_cache": True, "host_cache_tokens": 1},
        {"host_kv_tokens": 0, "host_cache_tokens": 0},
    ],
)
def test_a_setting_may_be_at_its_bound(least: dict[str, Any]) -> None:
    config = PolicyConfig(**least)
    assert {name: config.as_dict()[name] for name in least} == least


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"block_tokens": 0}, "block_tokens"),
        ({"max_model_len": 0}, "max_model_len"),
        ({"queue_limit": -1}, "queue_limit"),
        ({"queued_tokens_limit": -1}, "queued_tokens_limit"),
        ({"batching": "unified", "long_prefill_adaptive": True}, "long_prefill_adaptive"),
        ({"batching": "chunked", "long_prefill_adaptive": True}, "long_prefill_adaptive"),
        ({"wait_limit_s": -0.1}, "wait_limit_s"),
        ({"shed_ttft_s": float("inf")}, "shed_ttft_s"),
        ({"watermark": 1.0}, "watermark"),
        ({"watermark": -0.1}, "watermark"),
        ({"host_kv_tokens": -1}, "host_kv_tokens"),
        ({"host_cache_tokens": -1}, "host_cache_tokens"),
        ({"host_cache_tokens": 1}, "host_cache_tokens"),
        ({"draft_rows": -1}, "draft_rows"),
        ({"draft_slots": 1}, "draft_slots"),
        ({"prompt_token": False}, "prompt_token"),
        ({"draft_rows": 1, "decode_needs_free_block": True}, "decode_needs_free_block"),
        ({"draft_rows": 1, "recompute": "computed"}, "recompute"),
        ({"draft_rows": 3, "batching": "unified", "long_prefill_tokens": 3}, "long_prefill_tokens"),
        (
            {"draft_rows": 1, "prompt_token": False, "batching": "unified"}
            | {"queue_samples": True, "decide_ahead": True},
            "decide_ahead",
        ),
        ({"decodes_between_prefills": -1}, "decodes_between_prefills"),
        ({"padding": "off"}, "padding"),
        ({"watermark_alone": 0}, "watermark_alone"),
        ({"decode_needs_free_block": None}, "decode_needs_free_block"),
        ({"admit_after_preemption": "no"}, "admit_after_preemption"),
        ({"kv": "grouped", "kv_groups": "kept:64", "prefix_cache": True}, "prefix_cache"),
    ],
)
def test_a_setting_past_its_bound_is_named(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(PolicyError, match=f"^{named}: "):
        PolicyConfig(**settings)


@pytest.mark.parametrize(
    ("rounding", "units", "kept"),
    [("up", 250, 3), ("down", 250, 2), ("up", 200, 2), ("down", 200, 2), ("down", 99, 0)],
)
def test_a_watermark_of_one_percent_in_whole_units(
    rounding: Rounding, units: int, kept: int
) -> None:
    config = PolicyConfig(watermark=0.01, watermark_rounding=rounding)
    assert config.watermark_of(units) == kept


@pytest.mark.parametrize(
    ("batching", "budget", "drafts", "grown"),
    [
        ("unified", 256, 3, 256),  # 64 sequences of 1 + 3 rows fit exactly
        ("unified", 255, 3, 256),
        ("unified", 256, 7, 512),
        ("continuous", 256, 3, 256 + 64 * 3),
    ],
)
def test_drafts_find_room_in_the_budget(
    batching: str, budget: int, drafts: int, grown: int
) -> None:
    config = PolicyConfig(batching=batching, max_seqs=64, token_budget=budget).with_drafts(drafts)
    assert (config.draft_rows, config.token_budget) == (drafts, grown)
