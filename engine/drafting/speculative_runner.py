"""A runner whose decodes verify drafts: several tokens may come out of one pass.

A pass computes the last token of a sequence and the tokens drafted behind it. Rejected rows leave
keys and values behind the accepted ones; the next pass, which begins there, overwrites them.
"""

from collections.abc import Mapping
from functools import partial
from typing import Unpack

import torch
from torch import Tensor

from servetwin.engine.attention.choose import attention_backend
from servetwin.engine.attention.step_attention import AttentionBackend
from servetwin.engine.core.prompt_logprobs import keep_prompt_logprobs
from servetwin.engine.core.runner import Runner, RunnerOptions, sampled_tokens
from servetwin.engine.core.step_input import Share, StepInput
from servetwin.engine.drafting.drafts import Drafts
from servetwin.engine.drafting.model_drafter import ModelDrafter, NGramDrafter, share_logits
from servetwin.engine.drafting.proposals import (
    Drafter,
    Pass,
    Proposals,
    decisions,
    greedy_walk,
    walk,
)
from servetwin.engine.kv.kv_store import KVStore, store_type
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.linear import Products
from servetwin.engine.models.model import Decoder
from servetwin.engine.models.model_config import ModelConfig, model_preset
from servetwin.engine.models.weights import LoadWeights, random_weights
from servetwin.engine.sampling.distribution import argmax
from servetwin.engine.sampling.sampler import draw, probabilities, token_logprobs
from servetwin.engine.sampling.token_state import NewToken, TokenState
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
        **options: Unpack[RunnerOptions],
    ) -> None:
        super().__init__(config, computation, **options)
        drafts = computation.drafts
        self._drafts = drafts
        self._tree = drafts.tree
        _require_fit(drafts, config)
        if not self._tree.is_chain:
            _see_ancestors(self._attention, self._tree.paths)
        self._drafter = self._make_drafter(computation, draft_config, load_draft)

    @property
    def stores(self) -> list[KVStore]:
        """The KV memory of the model, and that of a draft model."""
        drafter_store = self._drafter.store
        return [self.store] if drafter_store is None else [self.store, drafter_store]

    def describe(self) -> dict[str, object]:
        """Return what a runner says, and what drafts."""
        facts: dict[str, object] = {"drafter": self._drafts.drafter, "widths": self._drafts.widths}
        if self._drafts.drafter == "model":
            facts["draft_model"] = self._drafts.model
        if self._drafter.store is not None:
            facts["draft_kv_bytes"] = self._drafter.store.bytes
            facts["draft_weight_bytes"] = self._draft_weight_bytes
        return super().describe() | facts

    def _tokens(self, batch: Batch, states: Mapping[str, TokenState]) -> dict[str, list[NewToken]]:
        passes, prompts = list[Pass](), list[Share]()
        for entry in batch.entries:
            state = states[entry.seq.output_id]
            if entry.start + entry.tokens > len(state.token_ids):
                passes.append(Pass(entry.seq, state))
            else:
                prompts.append(Share.of(entry, state))
        proposals = self._drafter.draft(passes, prompts)
        shares = [
            share
            for one, tokens in zip(passes, proposals.tokens, strict=True)
            for share in self._verified(one, tokens)
        ]
        logits = self.compute(StepInput.of_shares([*shares, *prompts]))
        verified, first = logits.tensor_split([len(passes) * self._tree.rows])
        tokens = self._verify(passes, proposals, verified) if passes else {}
        first = keep_prompt_logprobs(first, prompts, states)
        ended = [share.entry.seq for share in prompts if share.entry.yields_token]
        return tokens | sampled_tokens(first, ended, states)

    def copy_blocks(self, copies: list[tuple[int, int]]) -> None:
        """Copy keys and values from block to block, those of the draft model too."""
        super().copy_blocks(copies)
        if self._drafter.store is not None:
            self._drafter.store.copy_blocks(copies)

    def _verified(self, one: Pass, tokens: list[int]) -> list[Share]:
        """Return the rows of a pass: the last token of its sequence, and the drafted ones."""
        root, rows = one.root, self._tree.rows
        entry = ScheduledSequence(one.seq, root, rows, yields_token=True)
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
        accepted_tokens = {}
        for place, (one, end) in enumerate(zip(passes, ends, strict=True)):
            path = self._tree.paths[end]
            accepted = [proposals.tokens[place][row - 1] for row in path[1:]]
            drafted = proposals.drafted(place)
            tokens = [NewToken(token, drafted) for token in (*accepted, last[place])]
            top = one.state.params.logprobs
            if top is not None:
                rows = [place * self._tree.rows + row for row in path]
                tokens = _with_logprobs(tokens, raw[rows], top)
            accepted_tokens[one.seq.output_id] = tokens
        return accepted_tokens

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
        reached = walk(tree, tokens, chances, target, decisions(passes, tree).to(device))
        ends: list[int] = reached.rows.tolist()
        last = draw(
            reached.wanted,
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
            shallow = self._model.first_layers(layers)
            return ModelDrafter(partial(share_logits, shallow, self._attention), drafts)
        small = draft_config or model_preset(drafts.model)
        _require_vocabulary(small, config)
        load = load_draft or partial(random_weights, small, seed=drafts.seed, std=0.02)
        return self._beside(small, computation, load)

    def _beside(
        self, small: ModelConfig, computation: Computation, load: LoadWeights
    ) -> ModelDrafter:
        """Return the drafter of a model with keys and values in slots of the same numbers."""
        products = Products(computation)
        model = Decoder(small, load(self._dtype, self._device), products)
        self._draft_weight_bytes = products.weight_bytes + model.absorbed_bytes
        large = self.store
        sizes = small, large.tokens, large.layout, large.block_tokens
        store = store_type(computation.kv_format)(*sizes, dtype=self._dtype, device=self._device)
        group = small.heads // small.kv_heads
        options = small.windows, model.score_rules
        attention = attention_backend(computation.attention, store, group, *options)
        if not self._tree.is_chain:
            _see_ancestors(attention, self._tree.paths)
        return ModelDrafter(partial(share_logits, model, attention), self._drafts, store)


def _with_logprobs(tokens: list[NewToken], logits: Tensor, top: int) -> list[NewToken]:
    logprobs = token_logprobs(logits, [token.token_id for token in tokens], [top] * len(tokens))
    return [token._replace(logprobs=one) for token, one in zip(tokens, logprobs, strict=True)]


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


def _see_ancestors(attention: AttentionBackend, paths: tuple[tuple[int, ...], ...]) -> None:
    """Let the rows of drafted trees see what is on their path from the root alone."""
    visible = torch.zeros(len(paths), len(paths), dtype=torch.bool)
    for row, path in enumerate(paths):
        visible[row, list(path)] = True
    attention.tree = visible.to(attention.store.keys.device)
