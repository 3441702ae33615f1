"""Decodes that verify drafts: exact stories, laws over random workloads, and what is refused."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servetwin.policies.config import PolicyConfig
from servetwin.policies.sequence import Sequence
from servetwin.sim.core.simulate import simulate
from servetwin.sim.step_times.acceptance import Acceptance, Chain, Diffusion
from servetwin.sim.step_times.step_time import NoiseSample, StepNoise
from servetwin.workloads.errors import EngineError, PolicyError
from servetwin.workloads.request import Request
from tests.support.acceptance import mean_passes, mean_tokens_per_pass
from tests.support.checked import CheckedScheduler, request
from tests.support.drafted_runs import (
    DEPLOYMENTS,
    ONE_SECOND,
    SMALL,
    ByShape,
    Scripted,
    drafted_run,
    passes,
    story,
    verifying,
)
from tests.support.effort import examples
from tests.support.random_runs import policies, workloads


def test_a_request_advances_by_what_came_of_its_drafts() -> None:
    """Three, none and one token of three rows; of the last pass's three, one was still asked."""
    law = Scripted(3, 0, 1)
    asked = [request("a", 0.0, prompt=5, output=6)]
    run = drafted_run(SMALL, asked, law, step_time=ONE_SECOND, keep_records=True)
    assert story(run) == ["0 a@0+5", "1 a@5+3", "2 a@8+3", "3 a@8+3", "4 a@9+3"]
    done = run.requests.iloc[0]
    assert (done["first_token_s"], done["last_token_s"], done["output_tokens"]) == (1.0, 5.0, 6)
    assert done["tpot_s"] == (5.0 - 1.0) / (6 - 1)
    assert [record.free_tokens for record in run.records] == [64 - 12] * 5, "5 + 6 - 1 + 2 drafts"


def test_a_prompt_joins_beside_the_drafts_and_its_first_token_is_stamped_once() -> None:
    """Seven rows a step: three of a's pass and four of b's prompt, the first two steps of it."""
    config = replace(SMALL, token_budget=7)
    requests = [request("a", 0.0, prompt=4, output=6), request("b", 0.5, prompt=6, output=4)]
    law = Scripted(1, 1, 0)
    run = drafted_run(config, requests, law, step_time=ONE_SECOND, keep_records=True)
    assert story(run) == [
        "0 a@0+4",
        "1 a@4+3 b@0+4",
        "2 a@5+3 b@4+2",
        "3 a@6+3 b@6+3",
        "4 a@6+3 b@7+3",
        "5 b@8+3",
        "6 b@8+3",
    ]
    assert run.requests["first_token_s"].tolist() == [1.0, 3.0]
    assert run.requests["last_token_s"].tolist() == [5.0, 7.0]
    assert run.requests["queue_s"].tolist() == [0.0, 0.5]
    columns = ["decode_sequences", "prefill_chunks", "rows", "decode_context_tokens"]
    assert run.steps[columns].to_numpy().tolist() == [
        [0, 1, 4, 0],
        [1, 1, 7, 7],
        [1, 1, 5, 8],
        [2, 0, 6, 9 + 9],
        [2, 0, 6, 9 + 10],
        [1, 0, 3, 11],
        [1, 0, 3, 11],
    ]


@pytest.mark.parametrize(
    ("first", "kept", "rest"),
    [(3, 2, ["2 b@4+3 a@10+4", "3 a@14+3"]), (1, 1, ["2 b@3+3 a@10+4", "3 b@6+3 a@14+3"])],
)
def test_a_decode_behind_long_prompts_verifies_the_drafts_for_which_they_leave_rows(
    first: int, kept: int, rest: list[str]
) -> None:
    """As in vLLM: of seven rows a prompt takes five, and one draft of two is verified."""
    config = replace(
        SMALL, batching="unified", admission="prompt", token_budget=7, long_prefill_tokens=5
    )
    requests = [request("a", 0.0, prompt=14, output=2), request("b", 0.0, prompt=2, output=6)]
    law = Scripted(first)
    run = drafted_run(config, requests, law, step_time=ONE_SECOND, keep_records=True)
    assert story(run) == ["0 a@0+5 b@0+2", f"1 a@5+5 b@2+{kept}", *rest]
    assert run.steps["rows"].tolist()[:3] == [7, 7, 7]


BLOCKS = replace(SMALL, draft_rows=3, prompt_token=False)


def test_the_first_token_of_a_block_comes_with_its_last() -> None:
    """The prompt's pass yields none; six tokens are two blocks of four, three passes each."""
    asked = [request("a", 0.0, prompt=5, output=6)]
    run = drafted_run(BLOCKS, asked, Diffusion(4, 3), step_time=ONE_SECOND, keep_records=True)
    assert story(run) == ["0 a@0+5", *(f"{1 + n} a@5+4" for n in range(3)),
                          *(f"{4 + n} a@9+4" for n in range(3))]  # fmt: skip
    done = run.requests.iloc[0]
    assert (done["first_token_s"], done["last_token_s"], done["output_tokens"]) == (4.0, 7.0, 6)
    assert [record.free_tokens for record in run.records] == [64 - 16] * 7, "5 + 6 - 1 + a block"


@pytest.mark.parametrize("output", [1, 4])
def test_an_answer_of_one_block_comes_out_at_once(output: int) -> None:
    asked = [request("a", 0.0, prompt=5, output=output)]
    run = drafted_run(BLOCKS, asked, Diffusion(4, 3), step_time=ONE_SECOND, keep_records=True)
    assert len(run.records) == 1 + mean_passes(Diffusion(4, 3), output) == 4
    assert run.requests[["first_token_s", "last_token_s"]].iloc[0].tolist() == [4.0, 4.0]


def test_blocks_stamp_first_tokens_beside_prompts_that_are_still_read() -> None:
    """Each request waits for its own block, whatever the pass of another prompt yields."""
    config = replace(BLOCKS, token_budget=8)
    requests = [request("a", 0.0, prompt=4, output=4), request("b", 0.5, prompt=6, output=8)]
    law = Diffusion(4, 2)
    run = drafted_run(config, requests, law, step_time=ONE_SECOND, keep_records=True)
    assert story(run) == [
        "0 a@0+4",
        "1 a@4+4 b@0+4",
        "2 a@4+4 b@4+2",
        "3 b@6+4",
        "4 b@6+4",
        "5 b@10+4",
        "6 b@10+4",
    ]
    assert run.requests["first_token_s"].tolist() == [3.0, 5.0]
    assert run.requests["last_token_s"].tolist() == [3.0, 7.0]


def test_answers_to_one_prompt_begin_with_the_first_block_of_any() -> None:
    asked = replace(request("a", 0.0, prompt=6, output=8), samples=2)
    config = replace(BLOCKS, kv_tokens=200)
    law = Scripted(0, 4, rows=4, prompt_token=False)
    run = drafted_run(config, [asked], law, step_time=ONE_SECOND)
    assert run.requests[["first_token_s", "last_token_s"]].iloc[0].tolist() == [3.0, 4.0]
    assert run.requests["output_tokens"].tolist() == [16]


def test_a_block_needs_room_behind_the_answer() -> None:
    """40 + 21 - 1 positions and a block of 4 are 64; one token more is refused."""
    for output, status in ((21, "finished"), (22, "refused")):
        run = drafted_run(BLOCKS, [request("a", 0.0, 40, output)], Diffusion(4, 1))
        assert run.requests["status"].tolist() == [status]
    assert run.requests["error"][0].endswith("4 of its positions are for drafts")


def test_a_sequence_that_comes_with_its_prompt_computed_drafts_at_once() -> None:
    """As a prefill pool hands it over; it joins a step that has room for all of its rows."""
    scheduler = CheckedScheduler(replace(SMALL, token_budget=8))
    for name, computed in (("here", 0), ("moved", 6)):
        seq = Sequence(name, 0.0, 6, 9)
        seq.base_computed_tokens, seq.base_generated_tokens = computed, int(computed > 0)
        assert scheduler.add(seq) is None
    prompt = scheduler.schedule(0.0)
    assert prompt is not None
    assert [entry[1:3] for entry in prompt.entries] == [(0, 6)], "two rows are left, three needed"
    scheduler.complete(prompt)
    batch = scheduler.schedule(1.0)
    assert batch is not None
    assert [(e.seq.request_id, e.start, e.tokens) for e in batch.entries] == [
        ("here", 6, 3),
        ("moved", 6, 3),
    ]
    assert batch.drafted == batch.shape().drafted_chunks == 2


def test_an_aborted_request_leaves_its_place_and_its_memory() -> None:
    scheduler = CheckedScheduler(SMALL)
    seq = Sequence("gone", 0.0, 6, 9)
    scheduler.add(seq)
    batch = scheduler.schedule(0.0)
    assert batch is not None
    scheduler.complete(batch)
    assert scheduler.abort("gone") is seq
    assert scheduler.load() == (0, 0, 64)
    assert scheduler.schedule(1.0) is None


def test_several_answers_to_a_prompt_draw_each_for_itself() -> None:
    asked = replace(request("a", 0.0, prompt=6, output=40), samples=2)
    config = replace(SMALL, kv_tokens=200)
    run = drafted_run(config, [asked], Chain(0.6, 2), keep_records=True)
    assert run.requests["output_tokens"].tolist() == [80]
    starts = [[start for _, start, _, _ in record.entries] for record in run.records[1:]]
    assert all(len(pair) <= 2 for pair in starts)
    assert any(len(set(pair)) == 2 for pair in starts), "they advance apart"


@st.composite
def drafting(draw: st.DrawFn, most: int = 5, least: int = 1) -> PolicyConfig:
    """Any combination of policies, with drafts, over any memory."""
    drafts = draw(st.integers(least, most))
    config = draw(policies(draw(st.sampled_from(["continuous", "chunked", "unified"]))))
    needed, long = config.max_seqs * (1 + drafts), config.long_prefill_tokens
    blocks = draw(st.booleans())
    config = replace(
        config,
        draft_rows=drafts,
        draft_slots=draw(st.sampled_from([0, drafts])),
        token_budget=max(config.token_budget, needed),
        prompt_token=not blocks,
        long_prefill_tokens=max(long, 1 + drafts) if long else 0,
        decide_ahead=config.decide_ahead and not blocks,
        decode_needs_free_block=False,
        recompute="all",
    )
    if draw(st.booleans()):
        forgets = ["kept:7", "full,state"] * (not config.prefix_cache)
        groups = draw(st.sampled_from([*forgets, "window:16", "full,chunk:24"]))
        plain = {"eviction": "lru", "host_cache_tokens": 0}
        config = config.changed(kv="grouped", kv_groups=groups, **plain)
    return config


@st.composite
def laws(draw: st.DrawFn, config: PolicyConfig) -> Acceptance:
    rows = 1 + config.draft_rows
    if not config.prompt_token:
        return Diffusion(rows, draw(st.integers(1, 4)))
    alpha = draw(st.sampled_from([0.0, 0.3, 0.7, 0.9, 1.0]))
    return Chain(alpha, rows - 1)


@settings(max_examples=examples(50))
@given(data=st.data(), requests=workloads())
def test_macro_steps_equal_single_steps_and_every_law_holds(
    data: st.DataObject, requests: list[Request]
) -> None:
    config = data.draw(drafting())
    law = data.draw(laws(config))
    single, macro = (
        drafted_run(
            config,
            requests,
            law,
            macro,
            noise=StepNoise(NoiseSample(np.array([0.9, 1.0, 1.3])), np.random.default_rng(0)),
        )
        for macro in (False, True)
    )
    pd.testing.assert_frame_equal(single.requests, macro.requests, check_exact=True)
    assert single.extra["simulation"]["steps"] == macro.extra["simulation"]["steps"]
    done = macro.requests[macro.requests["status"] == "finished"]
    asked = {r.request_id: r.output_tokens * r.samples for r in requests}
    assert [asked[name] for name in done["request_id"]] == done["output_tokens"].tolist()
    assert (done["first_token_s"] > done["scheduled_s"] + done["queue_s"]).all()
    if config.admission == "full":
        assert macro.requests["preemptions"].sum() == 0
    assert (macro.steps["rows"] <= config.token_budget).all()


@pytest.mark.parametrize("name", DEPLOYMENTS)
@settings(max_examples=examples(10))
@given(data=st.data(), config=drafting(2, 2), requests=workloads())
def test_runs_of_passes_equal_single_passes(
    name: str, data: st.DataObject, config: PolicyConfig, requests: list[Request]
) -> None:
    """As one event, pass by pass, and where a clock knows the shape of each pass alone."""
    law = data.draw(laws(config))
    known, model = verifying(name), ByShape(verifying(name))
    macro, single, by_shape = (
        drafted_run(config, requests, law, one_event, step_time=times)
        for one_event, times in ((True, known), (False, known), (True, model))
    )
    pd.testing.assert_frame_equal(macro.requests, single.requests, check_exact=True)
    for taken in (single, by_shape):
        assert macro.extra["simulation"]["steps"] == taken.extra["simulation"]["steps"]
        assert (taken.steps["steps"] == 1).all()
    nearly = ["first_token_s", "last_token_s"]
    pd.testing.assert_frame_equal(macro.requests[nearly], by_shape.requests[nearly], rtol=1e-12)


def test_a_request_takes_three_events_however_many_passes() -> None:
    """One of its prompt, one that ends with it, one that the next arrival cuts short."""
    config = PolicyConfig(draft_rows=2, kv_tokens=1 << 20, max_seqs=50)
    requests = [request(str(n), 0.2 * n, 50, 150) for n in range(100)]
    model = verifying("a model on the device")
    run = drafted_run(config, requests, Chain(0.7, 2), step_time=model)
    assert len(run.steps) <= 3 * len(requests) < run.steps["steps"].sum() / 5


@settings(max_examples=examples(25))
@given(
    outputs=st.lists(st.integers(1, 40), min_size=1, max_size=10),
    alphas=st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted),
    drafts=st.integers(1, 6),
)
def test_a_likelier_acceptance_never_takes_a_request_more_passes(
    outputs: list[int], alphas: list[float], drafts: int
) -> None:
    config = PolicyConfig(draft_rows=drafts)
    requests = [request(str(n), 0.01 * n, 8, output) for n, output in enumerate(outputs)]
    less, more = (
        passes(drafted_run(config, requests, Chain(alpha, drafts), keep_records=True))
        for alpha in alphas
    )
    assert all(more[name] <= less[name] for name in less)


def test_the_passes_of_a_run_are_those_of_the_exact_law_and_no_token_is_lost() -> None:
    """Means within four standard errors of the renewal equation, and of the mean per pass."""
    law, count, output = Chain(0.7, 4), 400, 120
    config = PolicyConfig(draft_rows=4, kv_tokens=1 << 20, max_seqs=50)
    requests = [request(str(n), 0.002 * n, 20, output) for n in range(count)]
    run = drafted_run(config, requests, law, seed=3, keep_records=True)
    assert run.requests["output_tokens"].tolist() == [output] * count
    taken = pd.Series(passes(run))
    assert taken.sum() == run.steps["decode_sequences"].sum()
    error = taken.std() / np.sqrt(count)
    assert abs(taken.mean() - mean_passes(law, output - 1)) < 4 * error
    per_pass = count * (output - 1) / taken.sum()  # the cut of the last costs less than a pass
    assert mean_tokens_per_pass(law) * 0.95 < per_pass < mean_tokens_per_pass(law)


def test_a_seed_gives_the_same_bytes_and_another_gives_others() -> None:
    config = PolicyConfig(draft_rows=3)
    requests = [request(str(n), 0.02 * n, 9, 30) for n in range(20)]
    texts = [
        drafted_run(config, requests, Chain(0.6, 3), seed=seed).requests.to_csv()
        for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]


def test_company_changes_when_a_request_is_served_but_not_in_how_many_passes() -> None:
    config = PolicyConfig(draft_rows=3)
    first = [request("0", 0.0, 9, 60)]
    others = [request(str(n), 0.01 * n, 9, 30) for n in range(1, 12)]
    alone, together = (
        drafted_run(config, asked, Chain(0.6, 3), keep_records=True)
        for asked in (first, first + others)
    )
    assert passes(alone)["0"] == passes(together)["0"]
    assert alone.requests["e2e_s"][0] < together.requests["e2e_s"][0]


@pytest.mark.parametrize(("drafts", "status"), [(2, "finished"), (3, "refused")])
def test_a_request_needs_room_for_its_last_drafts(drafts: int, status: str) -> None:
    """40 + 23 - 1 positions and the drafts, of 64."""
    config = replace(SMALL, draft_rows=drafts)
    law = Chain(0.5, drafts)
    run = drafted_run(config, [request("a", 0.0, 40, 23)], law)
    assert run.requests["status"].tolist() == [status]
    if status == "refused":
        assert run.requests["error"][0] == (
            "too_long: needs 65 KV tokens, the memory has 64 (16 blocks of 4); "
            "3 of its positions are for drafts"
        )


def test_a_budget_must_feed_every_draft() -> None:
    PolicyConfig(max_seqs=8, draft_rows=4, token_budget=40)
    message = (
        r"token_budget: 39 is not possible; it must be at least 40 \(max_seqs 8 x 5 rows\): "
        "a step verifies 4 drafts of every running sequence"
    )
    with pytest.raises(PolicyError, match=message):
        PolicyConfig(max_seqs=8, draft_rows=4, token_budget=39)


def test_a_run_that_nobody_judges_says_what_is_missing() -> None:
    message = (
        "1 sequences verified drafts, but it is said of 0 .* sim.step_times.acceptance.Verifier"
    )
    with pytest.raises(PolicyError, match=message):
        simulate([request("a")], CheckedScheduler(SMALL), ONE_SECOND)


@pytest.mark.parametrize("tokens", [-1, 4])
def test_impossible_numbers_of_tokens_are_refused(tokens: int) -> None:
    message = f"{tokens} tokens cannot come out of a pass of 3 rows; it must be from 0 to 3"
    with pytest.raises(PolicyError, match=message):
        drafted_run(SMALL, [request("a", output=9)], Scripted(tokens), step_time=ONE_SECOND)


@pytest.mark.slow
def test_the_bundled_engine_refuses_it_without_a_drafter() -> None:
    pytest.importorskip("torch")
    from servetwin.engine.core.build import build_core
    from servetwin.engine.serve_options import ServeOptions

    config = PolicyConfig(draft_rows=2)
    message = "draft_rows 2 needs a drafter: --technique speculative"
    with pytest.raises(EngineError, match=message):
        build_core(ServeOptions(policies=config))
