"""Drafts change how many passes an answer takes, and nothing else."""

from dataclasses import replace

import numpy as np
import pytest

from servetwin.engine.core.core_process import CoreLoop
from servetwin.engine.core.messages import Abort, Message, TokenEvent, Update
from servetwin.engine.drafting.drafts import Drafts
from servetwin.engine.sampling.sampler import token_logprobs
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.sampling.token_state import token_state
from servetwin.policies.batch import Batch, ScheduledSequence
from servetwin.policies.config import PolicyConfig
from servetwin.policies.sequence import Sequence
from servetwin.workloads.errors import EngineError
from tests.support.speculative_engine import (
    DRAFTS,
    POLICIES,
    SAYS_MUCH,
    acceptance,
    engine_core,
    runner_of,
    said,
    said_by_sample,
    speculative,
)
from tests.support.timed_requests import TimedInbox, TimedRequest, run_requests

OUTPUT = 64
PLAIN = POLICIES.changed(batching="continuous")


def requests_of(output: int = OUTPUT, **params: object) -> list[TimedRequest]:
    """Five prompts in two waves, three of them with the same beginning."""
    rng = np.random.default_rng(4)
    shared = rng.integers(300, 500, 20).tolist()
    prompts = [rng.integers(300, 500, 9 + 7 * index).tolist() for index in range(5)]
    prompts[1:4] = [shared + prompt[:6] for prompt in prompts[1:4]]
    given = SamplingParams(output, **{"ignore_eos": True, **params})  # type: ignore[arg-type]
    return [
        (0.03 * (index % 2), f"r{index}", prompt, replace(given, seed=index))
        for index, prompt in enumerate(prompts)
    ]


@pytest.fixture(scope="module")
def greedy() -> dict[str, list[int]]:
    """What the engine says without drafts."""
    found = said(engine_core(PLAIN, Drafts()), requests_of())
    assert len({token for tokens in found.values() for token in tokens}) > 80
    return found


@pytest.mark.parametrize("name", DRAFTS)
def test_greedy_answers_are_those_without_drafts(name: str, greedy: dict[str, list[int]]) -> None:
    """Twice in one engine: the second time prompts are found in full, beside rejected rows."""
    drafts = DRAFTS[name]
    core = engine_core(replace(speculative(drafts), prefix_cache=True), drafts)
    assert said(core, requests_of()) == greedy
    assert said(core, requests_of()) == greedy
    assert core.stats().prefix_hits > 5 * 16
    assert core.stats().kv_usage == 0
    if name not in ("another model", "a tree"):
        assert acceptance(core) > 0.1


@pytest.mark.parametrize("attention", ["native", "per-sequence"])
@pytest.mark.parametrize("name", ["a noisy copy", "a tree of a noisy copy", "a tree of layers"])
def test_neither_attention_nor_layout_changes_an_answer(
    name: str, attention: str, greedy: dict[str, list[int]]
) -> None:
    drafts = DRAFTS[name]
    policies = replace(speculative(drafts), kv="contiguous", reservation="exact")
    assert said(engine_core(policies, drafts, attention=attention), requests_of()) == greedy


def test_a_draft_of_the_same_weights_is_always_accepted() -> None:
    for name, per_pass in (("the model itself", 3), ("a tree of the model", 2)):
        drafts = DRAFTS[name]
        core = engine_core(speculative(drafts), drafts)
        said(core, requests_of())
        assert acceptance(core) == per_pass


@pytest.mark.parametrize("name", ["a noisy copy", "a tree of a noisy copy", "n-grams"])
@pytest.mark.parametrize("output", [1, 2, 7])
def test_a_pass_is_cut_at_the_length_that_was_asked(
    name: str, output: int, greedy: dict[str, list[int]]
) -> None:
    drafts = DRAFTS[name]
    found = said(engine_core(speculative(drafts), drafts), requests_of(output))
    assert found == {request_id: tokens[:output] for request_id, tokens in greedy.items()}


def test_a_stop_string_or_the_end_of_sequence_cuts_a_pass() -> None:
    """The words are of a plain run: all that may stop it is found among its tokens."""
    drafts = DRAFTS["the model itself"]
    for params in ({"stop": (" ",)}, {"ignore_eos": False}, {"stop": ("a", "b"), "min_tokens": 5}):
        plain = said(engine_core(PLAIN, Drafts()), requests_of(**params))
        core = engine_core(speculative(drafts), drafts)
        assert said(core, requests_of(**params)) == plain
        assert core.stats().kv_usage == 0


def test_an_abort_in_the_middle_leaves_the_others_answers(greedy: dict[str, list[int]]) -> None:
    drafts = DRAFTS["a tree of a noisy copy"]
    core = engine_core(replace(speculative(drafts), prefix_cache=True), drafts)
    requests = requests_of()
    tokens: dict[str, list[int]] = {}
    aborted = {"r1", "r4"}

    class Aborting(TimedInbox):
        """Aborts two of the five once they have ten tokens."""

        def drain(self) -> list[Message]:
            due = [name for name in sorted(aborted) if len(tokens.get(name, ())) > 9]
            aborted.difference_update(due)
            return [*map(Abort, due), *super().drain()]

    def send(update: Update) -> None:
        for event in update.events:
            assert isinstance(event, TokenEvent)
            tokens.setdefault(event.request_id, []).append(event.token_id)

    CoreLoop(core, Aborting(core, requests), send).run()
    assert core.stats().kv_usage == 0
    for name, expected in greedy.items():
        assert tokens[name] == expected[: len(tokens[name])]
        assert (len(tokens[name]) < OUTPUT) == (name in ("r1", "r4"))


def test_equal_seeds_say_the_same_whatever_else_is_in_the_batch() -> None:
    drafts = DRAFTS["a tree of a noisy copy"]
    requests = requests_of(24, temperature=1.0)
    together = said(engine_core(speculative(drafts), drafts), requests)
    alone: dict[str, list[int]] = {}
    for request in requests:
        alone |= said(engine_core(speculative(drafts), drafts), [(0.0, *request[1:])])
    assert together == alone
    others = requests_of(24, temperature=1.0)
    others = [(at, name, ids, replace(given, seed=9)) for at, name, ids, given in others]
    assert said(engine_core(speculative(drafts), drafts), others) != together


def test_greedy_and_drawing_requests_share_a_batch(greedy: dict[str, list[int]]) -> None:
    for name in ("a noisy copy", "a tree of a noisy copy", "n-grams"):
        drafts = DRAFTS[name]
        mixed = [
            (at, name, ids, replace(given, temperature=float(index % 2)))
            for index, (at, name, ids, given) in enumerate(requests_of())
        ]
        found = said(engine_core(speculative(drafts), drafts), mixed)
        assert {n: found[n] for n in ("r0", "r2", "r4")} == {
            n: greedy[n] for n in ("r0", "r2", "r4")
        }


def test_a_sequence_that_fails_takes_no_other_with_it(greedy: dict[str, list[int]]) -> None:
    """The batch runs again in halves: every draft is made again by the same random numbers."""
    drafts = DRAFTS["a noisy copy"]
    core = engine_core(speculative(drafts), drafts)
    requests = requests_of()
    inbox, updates = TimedInbox(core, requests), list[Update]()
    calls = 0
    execute = core.executor.execute

    def failing(batch: object, states: dict[str, object]) -> object:
        nonlocal calls
        calls += 1
        if calls > 12 and "r2" in {e.seq.request_id for e in batch.entries}:  # type: ignore[attr-defined]
            raise RuntimeError("r2 fails")
        return execute(batch, states)  # type: ignore[arg-type]

    core.executor.execute = failing  # type: ignore[method-assign,assignment]
    CoreLoop(core, inbox, updates.append).run()
    events = [event for update in updates for event in update.events]
    for name, expected in greedy.items():
        tokens = [e.token_id for e in events if isinstance(e, TokenEvent) and e.request_id == name]
        assert tokens == expected[: len(tokens)]
        assert (len(tokens) == OUTPUT) == (name != "r2")
    assert core.stats().kv_usage == 0


def test_it_says_what_drafts() -> None:
    said_of = runner_of(DRAFTS["a tree of layers"]).describe()
    assert (said_of["drafter"], said_of["widths"]) == ("layers", (2, 1, 2))
    assert "draft_kv_bytes" not in said_of
    said_of = runner_of(DRAFTS["another model"]).describe()
    assert said_of["draft_kv_bytes"] == 1024 * 2 * 2 * 32 * 4  # one layer of two heads
    assert said_of["draft_model"] == "tiny"


@pytest.mark.parametrize(
    ("drafts", "config", "message"),
    [
        (
            Drafts("model", (1,), model="base"),
            SAYS_MUCH,
            "draft model base has 32000 tokens in its vocabulary, tiny 512: draft with a model",
        ),
        (Drafts("layers", (600,)), SAYS_MUCH, "widths: 600 proposals of 512 tokens of tiny"),
    ],
)
def test_drafts_that_cannot_be_made_are_refused(
    drafts: Drafts, config: object, message: str
) -> None:
    from servetwin.engine.drafting.speculative_runner import SpeculativeRunner
    from servetwin.engine.models.computation import Computation

    with pytest.raises(EngineError, match=f"^{message}"):
        SpeculativeRunner(
            config,  # type: ignore[arg-type]
            Computation(device="cpu", drafts=drafts),
            layout="paged",
            kv_tokens=64,
        )


def test_no_block_that_holds_rejected_rows_gets_a_key() -> None:
    """After answers with many rejections the cache finds prompts alone, and they are right."""
    drafts = DRAFTS["another model"]
    policies: PolicyConfig = replace(speculative(drafts), prefix_cache=True)
    core = engine_core(policies, drafts)
    first = said(core, [(0.0, "a", list(range(300, 316)), SamplingParams(40, ignore_eos=True))])
    longer = [*range(300, 316), *first["a"][:30]]
    request = [(0.0, "b", longer, SamplingParams(20, ignore_eos=True))]
    found = said(core, request)
    assert core.stats().prefix_hits == 16
    assert found == said(engine_core(PLAIN, Drafts()), request)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_accepted_tokens_have_the_logprobs_of_the_model(temperature: float) -> None:
    """Those of a plain engine that computes the whole answer as a prompt."""
    drafts = DRAFTS["a tree of a noisy copy"]
    prompt = list(range(300, 316))
    given = SamplingParams(12, temperature=temperature, seed=3, ignore_eos=True, logprobs=2)
    runner, states = runner_of(drafts), {}
    seq = Sequence("a", 0.0, len(prompt), 12)
    seq.blocks = list(range(8))
    state = states["a"] = token_state(list(prompt), given)
    first = ScheduledSequence(seq, 0, len(prompt), yields_token=True)
    found = runner.execute(Batch([first]), states)["a"]
    state.token_ids.append(found[0].token_id)
    while len(found) < 12:
        root = len(state.token_ids) - 1
        seq.base_generated_tokens, seq.base_computed_tokens = root + 1 - len(prompt), root
        batch = Batch([ScheduledSequence(seq, root, drafts.tree.rows, yields_token=True)])
        tokens = runner.execute(batch, states)["a"]
        found += tokens
        state.token_ids += [token.token_id for token in tokens]
    plain = runner_of(Drafts())
    for place, token in enumerate(found):
        whole = ScheduledSequence(seq, 0, len(prompt) + place, yields_token=True)
        logits = plain.logits(Batch([whole]), states)
        (expected,) = token_logprobs(logits, [token.token_id], [2])
        assert token.logprobs is not None
        assert token.logprobs.chosen == pytest.approx(expected.chosen, abs=1e-4)
        assert [t for t, _ in token.logprobs.top] == [t for t, _ in expected.top]


@pytest.mark.parametrize("name", ["the model itself", "a tree of a noisy copy"])
def test_several_answers_to_a_prompt_share_it_in_both_models(name: str) -> None:
    """A copy-on-write block is copied for the draft model too, else less would be accepted."""
    drafts = DRAFTS[name]
    core = engine_core(speculative(drafts), drafts)
    request = [(0.0, "a", list(range(300, 311)), SamplingParams(30, n=3, ignore_eos=True))]
    found = said_by_sample(core, request)
    plain = said_by_sample(engine_core(PLAIN, Drafts()), request)
    assert found == plain
    assert len(found) == 3
    if name == "the model itself":
        assert acceptance(core) == 3


def test_a_prompt_has_its_logprobs_beside_passes_of_others() -> None:
    drafts = DRAFTS["a tree of a noisy copy"]
    wanted = SamplingParams(6, ignore_eos=True, prompt_logprobs=1)
    requests = [*requests_of(20)[:3], (0.03, "told", list(range(300, 340)), wanted)]
    found = {}
    for name, core in (
        ("drafts", engine_core(replace(speculative(drafts), max_seqs=4, token_budget=70), drafts)),
        ("plain", engine_core(PLAIN, Drafts())),
    ):
        events = run_requests(core, requests)
        (first, *_) = [event for event in events if event.request_id == "told"]
        assert first.prompt_logprobs is not None
        found[name] = [said.chosen for said in first.prompt_logprobs if said is not None]
    assert len(found["plain"]) == 39
    assert found["drafts"] == pytest.approx(found["plain"], abs=1e-4)


@pytest.mark.parametrize("name", ["a noisy copy", "a tree of layers"])
def test_keys_in_int8_are_moved_with_their_scales(name: str) -> None:
    """The drafts change nothing there either: a pass reads what plain decodes would read."""
    drafts = DRAFTS[name]
    found = []
    for own, policies in ((drafts, speculative(drafts)), (Drafts(), PLAIN)):
        found.append(said(engine_core(policies, own, kv_format="int8"), requests_of()))
    assert found[0] == found[1]
