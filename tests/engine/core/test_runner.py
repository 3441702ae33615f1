from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import count, product

import pytest
import torch

from servetwin.engine.core.runner import Runner
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.linear import PREPACKED
from servetwin.engine.models.tensor_layout import parameters
from servetwin.engine.sampling.sampling_params import EOS_ID, SamplingParams
from servetwin.engine.sampling.token_state import NewToken, TokenState
from servetwin.policies.batch import Batch, ScheduledSequence
from servetwin.policies.protocols import KVLayout
from servetwin.policies.sequence import Sequence
from servetwin.workloads.errors import EngineError
from tests.support.engine_oracle import (
    CONFIG,
    NEW_TOKENS,
    PROMPT_TOKENS,
    PROMPTS,
    SHARED_TOKENS,
    STD,
    Oracle,
    ask_transformers,
    draw_weights,
)

BLOCK_TOKENS, KV_TOKENS = 16, 1024
MAX_LOGIT_ERROR = 1e-4
GREEDY = SamplingParams(NEW_TOKENS)


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return ask_transformers(draw_weights())


class RecordingRunner(Runner):
    """Keeps the logits of every step, and starts with a KV memory that no step should read."""

    def __init__(self, **options: object) -> None:
        layout = {key: options.pop(key) for key in ("layout", "block_tokens") if key in options}
        computation = Computation(**({"device": "cpu"} | options))  # type: ignore[arg-type]
        defaults: dict[str, object] = {
            "layout": "paged",
            "kv_tokens": KV_TOKENS,
            "block_tokens": BLOCK_TOKENS,
            "weight_std": STD,
        }
        super().__init__(CONFIG, computation, **(defaults | layout))  # type: ignore[arg-type]
        self.store.keys.fill_(torch.nan)
        self.store.values.fill_(torch.nan)
        self.seen: list[torch.Tensor] = []

    def logits(self, batch: Batch, states: object) -> torch.Tensor:
        logits = super().logits(batch, states)  # type: ignore[arg-type]
        self.seen.append(logits.clone())
        return logits


def make_sequences() -> list[Sequence]:
    """One sequence per prompt, with scattered blocks and a region."""
    total_blocks = KV_TOKENS // BLOCK_TOKENS
    blocks = torch.randperm(total_blocks, generator=torch.Generator().manual_seed(3)).tolist()
    region = KV_TOKENS // len(PROMPTS)
    held = -(-(PROMPT_TOKENS + NEW_TOKENS) // BLOCK_TOKENS)
    seqs = []
    for index in range(len(PROMPTS)):
        seq = Sequence(str(index), 0.0, PROMPT_TOKENS, NEW_TOKENS)
        seq.blocks = blocks[index * held : (index + 1) * held]
        seq.region_start, seq.held.region_tokens = index * region + 5, region - 5
        seqs.append(seq)
    return seqs


@dataclass
class Driver:
    """A scheduler without decisions: sequences join at given steps and run to their end."""

    runner: RecordingRunner
    chunk_tokens: int = PROMPT_TOKENS + NEW_TOKENS
    padding: int = 0
    params: SamplingParams = GREEDY

    def run(self, seqs: list[Sequence], joins: list[int]) -> tuple[list[list[int]], torch.Tensor]:
        """New tokens and their logits [sequence, new token, vocabulary]."""
        states = {
            seq.request_id: TokenState(
                list(PROMPTS[int(seq.request_id)]), self.params, self.params.seed or 0
            )
            for seq in seqs
        }
        logits: dict[str, list[torch.Tensor]] = {seq.request_id: [] for seq in seqs}
        for step in count():
            joined = [seq for seq, join in zip(seqs, joins, strict=True) if join <= step]
            batch = Batch(list(self.entries(joined)))
            self.advance(batch, self.runner.execute(batch, states), states)
            sampled = [entry.seq.request_id for entry in batch.entries if entry.yields_token]
            for request_id, row in zip(sampled, self.runner.seen.pop(), strict=True):
                logits[request_id].append(row)
            if all(seq.finished for seq in seqs):
                break
        tokens = [states[seq.request_id].token_ids[PROMPT_TOKENS:] for seq in seqs]
        return tokens, torch.stack([torch.stack(rows) for rows in logits.values()])

    def entries(self, seqs: list[Sequence]) -> Iterator[ScheduledSequence]:
        for seq in seqs:
            due = seq.total_tokens - seq.computed_tokens
            tokens = min(due, self.chunk_tokens)
            if not seq.finished:
                padding = self.padding if due > 1 else 0
                yield ScheduledSequence(seq, seq.computed_tokens, tokens, tokens == due, padding)
            elif self.padding:
                yield ScheduledSequence(seq, seq.computed_tokens, 0, False, padding=1)

    def advance(
        self, batch: Batch, new_tokens: dict[str, list[NewToken]], states: dict[str, TokenState]
    ) -> None:
        for entry in batch.entries:
            entry.seq.base_computed_tokens += entry.tokens
            if entry.yields_token:
                entry.seq.base_generated_tokens += 1
                (token,) = new_tokens[entry.seq.request_id]
                states[entry.seq.request_id].token_ids.append(token.token_id)


def run_alone(driver: Driver) -> tuple[list[list[int]], torch.Tensor]:
    runs = [driver.run([seq], [0]) for seq in make_sequences()]
    return [tokens for run, _ in runs for tokens in run], torch.cat([logits for _, logits in runs])


def run_together(driver: Driver) -> tuple[list[list[int]], torch.Tensor]:
    """Prompts and decodes share steps, since the sequences join one after the other."""
    return driver.run(make_sequences(), [0, 0, 5, 11])


def test_the_oracle_says_many_different_things_and_is_sure_of_them(oracle: Oracle) -> None:
    assert len({token for tokens in oracle.tokens for token in tokens}) > 1.5 * NEW_TOKENS
    best, second = oracle.logits.topk(2, -1).values.unbind(-1)
    assert (best - second).min() > 10 * MAX_LOGIT_ERROR


@pytest.mark.parametrize("prepack", [True, False], ids=["prepacked", "plain"])
@pytest.mark.parametrize("attention", ["native", "per-sequence"])
@pytest.mark.parametrize("layout", ["paged", "contiguous"])
def test_greedy_tokens_are_those_of_transformers_in_every_mode(
    oracle: Oracle, layout: KVLayout, attention: str, prepack: bool
) -> None:
    runner = RecordingRunner(layout=layout, attention=attention, prepack=prepack)
    modes = product([PROMPT_TOKENS + NEW_TOKENS, 7], [0, 3], [run_alone, run_together])
    for chunk_tokens, padding, run in modes:
        tokens, logits = run(Driver(runner, chunk_tokens, padding))
        mode = (chunk_tokens, padding, run.__name__)
        assert tokens == oracle.tokens, mode
        assert (logits - oracle.logits).abs().max() <= MAX_LOGIT_ERROR, mode


@pytest.mark.parametrize("attention", ["native", "per-sequence"])
@pytest.mark.parametrize(
    ("chunk_tokens", "join"),
    [(PROMPT_TOKENS, 0), (PROMPT_TOKENS, 3), (3, 14)],
    ids=["same step", "later step", "chunks"],
)
def test_shared_prefix_blocks_change_no_token(
    oracle: Oracle, attention: str, chunk_tokens: int, join: int
) -> None:
    first, second = make_sequences()[:2]
    shared = SHARED_TOKENS // BLOCK_TOKENS
    second.blocks[:shared] = first.blocks[:shared]
    second.base_computed_tokens = second.cached_tokens = SHARED_TOKENS
    driver = Driver(RecordingRunner(attention=attention), chunk_tokens)
    tokens, logits = driver.run([first, second], [0, join])
    assert tokens == oracle.tokens[:2]
    assert (logits - oracle.logits[:2]).abs().max() <= MAX_LOGIT_ERROR


@pytest.mark.parametrize("chunk_tokens", [PROMPT_TOKENS + NEW_TOKENS, 7])
def test_recompute_after_preemption_changes_no_token(oracle: Oracle, chunk_tokens: int) -> None:
    (seq,) = make_sequences()[:1]
    driver = Driver(RecordingRunner(), chunk_tokens)
    seq.max_tokens = 20
    before, _ = driver.run([seq], [0])
    driver.runner.store.keys.fill_(torch.nan)
    seq.max_tokens, seq.base_computed_tokens, seq.blocks = NEW_TOKENS, 0, list(range(60, 53, -1))
    states = {"0": TokenState(PROMPTS[0] + before[0], GREEDY)}
    while not seq.finished:
        batch = Batch(list(driver.entries([seq])))
        driver.advance(batch, driver.runner.execute(batch, states), states)
    assert states["0"].token_ids[PROMPT_TOKENS:] == oracle.tokens[0]


@pytest.mark.parametrize(("layout", "block_tokens"), [("paged", 16), ("contiguous", 1)])
def test_the_layout_changes_no_token(oracle: Oracle, layout: KVLayout, block_tokens: int) -> None:
    runner = RecordingRunner(layout=layout, block_tokens=block_tokens)
    assert (runner.store.layout, runner.store.block_tokens) == (layout, block_tokens)
    for _ in range(2):
        assert run_together(Driver(runner))[0] == oracle.tokens


def test_a_seeded_temperature_gives_the_same_tokens_alone_and_in_a_batch() -> None:
    runner = RecordingRunner()
    params = SamplingParams(NEW_TOKENS, temperature=0.9, seed=11)
    alone, _ = run_alone(Driver(runner, params=params))
    assert run_together(Driver(runner, params=params))[0] == alone
    assert run_together(Driver(runner, params=replace(params, seed=12)))[0] != alone


def test_the_end_of_sequence_waits_for_the_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    """The minimum counts generated tokens, not those of the prompt."""
    runner, seq = RecordingRunner(), make_sequences()[0]
    forced = torch.zeros(1, CONFIG.vocab_size)
    forced[0, EOS_ID], forced[0, 9] = 2.0, 1.0
    monkeypatch.setattr(runner, "logits", lambda batch, states: forced.clone())
    batch = Batch([ScheduledSequence(seq, 0, PROMPT_TOKENS, yields_token=True)])
    params = SamplingParams(4, min_tokens=1)
    for generated, token in (([], 9), ([9], EOS_ID)):
        state = TokenState(PROMPTS[0] + generated, params)
        assert runner.execute(batch, {"0": state}) == {"0": [NewToken(token)]}


def test_a_step_without_samples_computes_and_returns_nothing() -> None:
    runner, seq = RecordingRunner(), make_sequences()[0]
    states = {"0": TokenState(PROMPTS[0], GREEDY)}
    assert runner.execute(Batch([ScheduledSequence(seq, 0, 7, yields_token=False)]), states) == {}
    assert runner.seen[0].shape == (0, CONFIG.vocab_size)
    stored = runner.store.slots(seq, 0, 7)
    assert runner.store.keys[:, stored].isfinite().all()
    assert runner.store.keys.isfinite().sum() == runner.store.keys[:, stored].numel()


def test_padding_rows_and_dead_rows_are_not_stored() -> None:
    runner, (seq, dead) = RecordingRunner(), make_sequences()[:2]
    states = {"0": TokenState(PROMPTS[0], GREEDY), "1": TokenState(PROMPTS[1], GREEDY)}
    runner.execute(Batch([ScheduledSequence(dead, 0, 9, yields_token=True)]), states)
    before = runner.store.keys.clone()
    entries = [
        ScheduledSequence(seq, 0, 5, yields_token=False, padding=4),
        ScheduledSequence(dead, 9, 0, yields_token=False, padding=1),
    ]
    runner.execute(Batch(entries), {"0": states["0"]})
    changed = (runner.store.keys != before) & ~(runner.store.keys.isnan() & before.isnan())
    assert sorted(changed.any(-1).any(-1).all(0).nonzero().flatten().tolist()) == sorted(
        runner.store.slots(seq, 0, 5)
    )


def test_execute_leaves_states_and_batch_alone() -> None:
    seq = make_sequences()[0]
    batch = Batch([ScheduledSequence(seq, 0, PROMPT_TOKENS, yields_token=True)])
    states = {"0": TokenState(list(PROMPTS[0]), GREEDY)}
    copies = deepcopy((seq.blocks, states))
    RecordingRunner().execute(batch, states)
    assert (seq.blocks, states) == copies
    assert seq.computed_tokens == 0


def test_describe_names_the_resolved_choices() -> None:
    description = RecordingRunner(attention="per-sequence").describe()
    assert description.pop("device")
    assert description.pop("linear") in ("native", PREPACKED, "plain")
    assert description == {
        "model": "tiny",
        "parameters": parameters(CONFIG),
        "dtype": "float32",
        "weight_format": "as-dtype",
        "weight_bytes": 4 * (parameters(CONFIG) - CONFIG.hidden_size * (CONFIG.vocab_size + 5)),
        "threads": 1,
        "attention": "per-sequence",
        "graph_rows": 0,
        "kv_cache": True,
        "kv_tokens": KV_TOKENS,
        "kv_format": "as-dtype",
        "kv_bytes": KV_TOKENS * CONFIG.kv_bytes_per_token(4),
        "layout": "paged",
        "block_tokens": BLOCK_TOKENS,
    }


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (
            {"attention": "flash"},
            "unknown attention 'flash': use auto, native, per-sequence, triton",
        ),
        ({"dtype": "int8"}, "unknown dtype 'int8': use auto, float32, bfloat16 or float16"),
        ({"threads": 0}, "threads, kv_tokens and block_tokens must be at least 1"),
    ],
)
def test_impossible_options_are_refused(option: dict[str, object], message: str) -> None:
    with pytest.raises(EngineError, match=f"^{message}$"):
        RecordingRunner(**option)


on_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=on_gpu)])
@pytest.mark.parametrize("layout", ["paged", "contiguous"])
def test_bfloat16_stays_near_the_float32_oracle(device: str, layout: KVLayout) -> None:
    """Teacher-forced: ties make free-running tokens of low precision diverge."""
    oracle = ask_transformers(draw_weights(device))
    runner = RecordingRunner(layout=layout, device=device, dtype="bfloat16")
    states = {
        str(i): TokenState(prompt + tokens, GREEDY)
        for i, (prompt, tokens) in enumerate(zip(PROMPTS, oracle.tokens, strict=True))
    }
    seqs, steps = make_sequences(), []
    for start in (0, *range(PROMPT_TOKENS, PROMPT_TOKENS + NEW_TOKENS - 1)):
        tokens = 1 if start else PROMPT_TOKENS
        batch = Batch([ScheduledSequence(seq, start, tokens, yields_token=True) for seq in seqs])
        steps.append(runner.logits(batch, states).cpu())
    logits = torch.stack(steps, 1)
    error = (logits - oracle.logits).abs().max()
    assert error < 0.15 * oracle.logits.std()
    best = oracle.logits.topk(2, -1)
    clear = best.values[..., 0] - best.values[..., 1] > 3 * error
    assert clear.sum() > 50
    assert torch.equal(logits.argmax(-1)[clear], best.indices[..., 0][clear])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_cuda_step_makes_the_host_wait_only_for_its_tokens() -> None:
    runner, seqs = RecordingRunner(device="cuda"), make_sequences()
    states = {str(i): TokenState([*prompt, 1], GREEDY) for i, prompt in enumerate(PROMPTS)}
    prefill = Batch([ScheduledSequence(seq, 0, 30, yields_token=False) for seq in seqs])
    mixed = [ScheduledSequence(seq, 30, 10, yields_token=True, padding=2) for seq in seqs[1:]]
    steps = [prefill, Batch([ScheduledSequence(seqs[0], 30, 1, yields_token=True), *mixed])]
    expected = [runner.logits(batch, states).shape for batch in steps]
    torch.cuda.set_sync_debug_mode("error")  # A step that makes the host wait raises.
    try:
        shapes = [runner.logits(batch, states).shape for batch in steps]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert shapes == expected
