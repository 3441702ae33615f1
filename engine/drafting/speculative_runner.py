"""A runner whose decodes verify drafts: several tokens may come out of one pass.

A pass computes the last token of a sequence and the tokens drafted behind it. Rejected rows leave
keys and values behind the accepted ones; the next pass, which begins there, overwrites them.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from servetwin.engine.attention.choose import attention_backend
from servetwin.engine.core.prompt_logprobs import (
    PromptSpan,
    keep_prompt_logprobs,
    prompt_spans,
    say_prompt_logprobs,
)
from servetwin.engine.core.runner import Runner, TokenState
from servetwin.engine.drafting.drafts import Drafts
from servetwin.engine.drafting.model_drafter import ModelDrafter, NGramDrafter
from servetwin.engine.drafting.network import Network, Share, see_ancestors
from servetwin.engine.drafting.proposals import (
    Drafter,
    Pass,
    Proposals,
    decisions,
    greedy_walk,
    walk,
)
from servetwin.engine.kv.int8_store import kv_store
from servetwin.engine.kv.kv_store import KVStore
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.linear import linear_maker
from servetwin.engine.models.model import Decoder
from servetwin.engine.models.model_config import ModelConfig, model_preset
from servetwin.engine.models.random_weights import random_weights
from servetwin.engine.models.weights import LoadWeights
from servetwin.engine.sampling.distribution import argmax
from servetwin.engine.sampling.logprobs import token_logprobs
from servetwin.engine.sampling.new_token import NewToken
from servetwin.engine.sampling.sampler import draw, new_tokens, probabilities
from servetwin.policies.batch import Batch, ScheduledSequence
from servetwin.policies.sequence import Sequence
from servetwin.workloads.errors import EngineError


class SpeculativeRunner(Runner):
    """A runner with a drafter, as ``Computation.drafts`` says.

    ``draft_config`` is the shape of a draft model that is no preset, and ``load_draft`` loads its
    weights (None: they are drawn at random).
    """

    def __init__(
        self,
        config: ModelConfig,
        computation: Computation,
        *,
        draft_config: ModelConfig | None = None,
        load_draft: LoadWeights | None = None,
        **options: Any,
    ) -> None:
        super().__init__(config, computation, **options)
        drafts = computation.drafts
        self._drafts = drafts
        self._tree = drafts.tree
        self._network = Network(self._model, self._attention)
        _require_fit(drafts, config)
        if not self._tree.is_chain:
            see_ancestors(self._attention, self._tree.paths)
        self._drafter = self._make_drafter(computation, draft_config, load_draft)

    @property
    def stores(self) -> list[KVStore]:
        """The KV memory of the model, and that of a draft model."""
        own = self._drafter.store
        return [self.store] if own is None else [self.store, own]

    def describe(self) -> dict[str, object]:
        """Return what a runner says, and what drafts."""
        said: dict[str, object] = {"drafter": self._drafts.drafter, "widths": self._drafts.widths}
        if self._drafts.drafter == "model":
            said["draft_model"] = self._drafts.model
        if self._drafter.store is not None:
            said["draft_kv_bytes"] = self._drafter.store.bytes
            said["draft_weight_bytes"] = self._draft_weight_bytes
        return super().describe() | said

    def _tokens(self, batch: Batch, states: Mapping[str, TokenState]) -> dict[str, list[NewToken]]:
        entries = [(entry, states[entry.seq.output_id]) for entry in batch.entries]
        passes = [Pass(e.seq, s) for e, s in entries if e.start + e.tokens > len(s.token_ids)]
        prompts = [(e, s) for e, s in entries if e.start + e.tokens <= len(s.token_ids)]
        proposals = self._drafter.draft(passes, prompts)
        shares = [
            share
            for one, tokens in zip(passes, proposals.tokens, strict=True)
            for share in self._verified(one, tokens)
        ]
        spans = prompt_spans([entry for entry, _ in prompts], states)
        told = {id(span.state): span.positions for span in spans}
        shares += [_prompt(entry, state, told.get(id(state), 0)) for entry, state in prompts]
        logits = self._network.logits(shares)
        verified, of_prompts = logits.tensor_split([len(passes) * self._tree.rows])
        if told:
            of_prompts = _keep_told(of_prompts, prompts, spans)
        found = self._verify(passes, proposals, verified) if passes else {}
        return found | _first_tokens(prompts, states, of_prompts)

    def copy_blocks(self, copies: list[tuple[int, int]]) -> None:
        """Copy keys and values from block to block, those of the draft model too."""
        super().copy_blocks(copies)
        if self._drafter.store is not None:
            self._drafter.store.copy_blocks(copies)

    def _verified(self, one: Pass, tokens: list[int]) -> list[Share]:
        """Return the rows of a pass: the last token of its sequence, and the drafted ones."""
        root, rows = one.root, self._tree.rows
        entry = ScheduledSequence(one.seq, root, rows, samples=True)
        ids = [one.state.token_ids[root], *(max(token, 0) for token in tokens)]
        positions = [root + depth for depth in self._tree.depths]
        share = Share(entry, ids, positions, range(rows))
        return share.single_rows() if self._tree.is_chain else [share]

    def _verify(
        self, passes: list[Pass], proposals: Proposals, logits: Tensor
    ) -> dict[str, list[NewToken]]:
        """Return the accepted tokens of each pass and one more, and keep their rows alone."""
        raw = logits
        if proposals.chances is None:
            wanted = argmax(logits).view(len(passes), -1).tolist()
            each = zip(proposals.tokens, wanted, strict=True)
            ends = [greedy_walk(self._tree, tokens, wants) for tokens, wants in each]
            last = [wants[end] for wants, end in zip(wanted, ends, strict=True)]
        else:
            if any(one.state.params.logprobs is not None for one in passes):
                raw = logits.clone()
            ends, last = self._drawn(passes, proposals, proposals.chances, logits)
        self._keep_accepted(passes, ends)
        found = {}
        for place, (one, end) in enumerate(zip(passes, ends, strict=True)):
            path = self._tree.paths[end]
            accepted = [proposals.tokens[place][row - 1] for row in path[1:]]
            drafted = proposals.drafted(place)
            tokens = [NewToken(token, drafted) for token in (*accepted, last[place])]
            top = one.state.params.logprobs
            if top is not None:
                rows = [place * self._tree.rows + row for row in path]
                tokens = _with_logprobs(tokens, raw[rows], top)
            found[one.seq.output_id] = tokens
        return found

    def _drawn(
        self, passes: list[Pass], proposals: Proposals, chances: Tensor, logits: Tensor
    ) -> tuple[list[int], list[int]]:
        """Return the row that each pass reaches, and the token that is drawn there."""
        tree, device = self._tree, logits.device
        rows = [
            one.row(tree.depths[row], [tokens[at - 1] for at in tree.paths[row][1:]])
            for one, tokens in zip(passes, proposals.tokens, strict=True)
            for row in range(tree.rows)
        ]
        target = probabilities(logits, rows).view(len(passes), tree.rows, -1)
        tokens = torch.tensor(proposals.tokens, device=device)
        found = walk(tree, tokens, chances, target, decisions(passes, tree).to(device))
        ends: list[int] = found.rows.tolist()
        last = draw(
            found.wanted,
            [one.row(tree.depths[end], []) for one, end in zip(passes, ends, strict=True)],
        )
        return ends, last.tolist()

    def _keep_accepted(self, passes: list[Pass], ends: list[int]) -> None:
        """Move keys and values of accepted rows behind one another; those of a chain are there."""
        if self._tree.is_chain:
            return
        moved: list[tuple[Sequence, int, int]] = []
        for one, end in zip(passes, ends, strict=True):
            path = enumerate(self._tree.paths[end])
            root = one.root
            moved += [(one.seq, root + row, root + depth) for depth, row in path if row > depth]
        for store in (self.store, self._drafter.store):
            if moved and store is not None:
                store.move(
                    [store.slot(seq, start) for seq, start, _ in moved],
                    [store.slot(seq, stop) for seq, _, stop in moved],
                )

    def _make_drafter(
        self,
        computation: Computation,
        draft_config: ModelConfig | None,
        load_draft: LoadWeights | None,
    ) -> Drafter:
        drafts, config = self._drafts, self._config
        if drafts.drafter == "n-gram":
            drafted, longest = self._tree.drafts, drafts.longest_match
            return NGramDrafter(drafted, longest, config.vocab_size, self._device)
        if drafts.drafter == "layers":
            layers = max(1, round(config.layers * drafts.layer_share))
            network = Network(self._model.first_layers(layers), self._attention)
            return ModelDrafter(network, drafts, own=False)
        small = draft_config or model_preset(drafts.model)
        _require_vocabulary(small, config)
        load = load_draft or partial(random_weights, small, seed=drafts.seed, std=0.02)
        return ModelDrafter(self._beside(small, computation, load), drafts, own=True)

    def _beside(self, small: ModelConfig, computation: Computation, load: LoadWeights) -> Network:
        """Return the draft model with keys and values in slots of the same numbers."""
        products = linear_maker(computation)
        model = Decoder(small, load(self._dtype, self._device), products)
        self._draft_weight_bytes = products.weight_bytes + model.absorbed_bytes
        own = self.store
        store = kv_store(
            computation.kv_format,
            small,
            own.tokens,
            own.layout,
            own.block_tokens,
            dtype=self._dtype,
            device=self._device,
        )
        group = small.heads // small.kv_heads
        attention = attention_backend(computation.attention, store, group, small.windows)
        if not self._tree.is_chain:
            see_ancestors(attention, self._tree.paths)
        return Network(model, attention)


def _prompt(entry: ScheduledSequence, state: TokenState, told: int) -> Share:
    """Return a chunk of a prompt, of whose first ``told`` rows logprobs are wanted."""
    start, tokens = entry.start, entry.tokens
    ids = state.token_ids[start : start + tokens]
    sampled = [*range(told), *range(tokens - 1 if entry.samples else tokens, tokens)]
    return Share(entry, ids, range(start, start + tokens), sampled)


def _keep_told(
    logits: Tensor, prompts: list[tuple[ScheduledSequence, TokenState]], spans: list[PromptSpan]
) -> Tensor:
    """Keep the logprobs of prompts; return the logits of their last rows alone."""
    told = {id(span.state): span.positions for span in spans}
    told_rows: list[int] = []
    last_rows: list[int] = []
    row = 0
    for entry, state in prompts:
        stop = row + told.get(id(state), 0)
        told_rows += range(row, stop)
        row = stop + entry.samples
        last_rows += range(stop, row)
    keep_prompt_logprobs(logits[told_rows], spans)
    return logits[last_rows]


def _first_tokens(
    prompts: list[tuple[ScheduledSequence, TokenState]],
    states: Mapping[str, TokenState],
    logits: Tensor,
) -> dict[str, list[NewToken]]:
    """Return the first tokens of the prompts that end, of each of their answers."""
    ended = [entry.seq for entry, _ in prompts if entry.samples]
    answers = [(place, seq, name) for place, seq in enumerate(ended) for name in seq.output_ids()]
    if not answers:
        return {}
    generated = [len(states[name].token_ids) - seq.prompt_tokens for _, seq, name in answers]
    rows = [states[name].row(n) for (_, _, name), n in zip(answers, generated, strict=True)]
    tokens = new_tokens(logits[[place for place, _, _ in answers]], rows)
    found = {name: [token] for (_, _, name), token in zip(answers, tokens, strict=True)}
    for seq in ended:
        say_prompt_logprobs(seq, states[seq.output_id], found)
    return found


def _with_logprobs(tokens: list[NewToken], logits: Tensor, top: int) -> list[NewToken]:
    said = token_logprobs(logits, [token.token_id for token in tokens], [top] * len(tokens))
    return [token._replace(logprobs=own) for token, own in zip(tokens, said, strict=True)]


def _require_fit(drafts: Drafts, config: ModelConfig) -> None:
    if max(drafts.widths) > config.vocab_size:
        raise EngineError(
            f"widths: {max(drafts.widths)} proposals of {config.vocab_size} tokens of "
            f"{config.name}; there cannot be more than tokens"
        )
    if not drafts.tree.is_chain and any(config.windows):
        raise EngineError(
            f"widths: {config.name} has layers with a window, over which trees of drafts are not "
            "verified; use widths of 1"
        )


def _require_vocabulary(draft: ModelConfig, target: ModelConfig) -> None:
    if draft.vocab_size != target.vocab_size:
        raise EngineError(
            f"draft model {draft.name} has {draft.vocab_size} tokens in its vocabulary, "
            f"{target.name} {target.vocab_size}: draft with a model of the same vocabulary, with "
            "n-grams, or with layers of the model itself"
        )
