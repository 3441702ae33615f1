"""Techniques of serving: how requests share steps, memory and servers.

Symbols in the formulas: n or p prompt tokens, m or o output tokens, b slots of a batch or tokens of
a block, C chunk tokens, k answers to a prompt, K prompts that share s tokens.
"""

from typing import Annotated

from pydantic import Field

from servetwin.policies.config import PrefixIndex, Reservation
from servetwin.sim.catalogue.entry import Count, Positive
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import Experiment, Technique

_NO_BUDGET = 1 << 20
# Schedulers that admit a request to a free slot; all others admit at every step.
_BY_REQUEST = ("static", "insertion")


class ServingTechnique(Technique):
    """A technique that changes which requests share a step, its memory or a server."""

    def _require_whole_contexts(self, setup: Setup) -> None:
        """Raise ``PolicyError`` where a server does not keep every token of every layer."""
        self._require_keys(setup)
        deployment = setup.deployment
        for group in deployment.model.layers:
            if group.mixer.resident_limit() or group.mixer.state_elements():
                raise self.refusal(
                    f"{deployment.model.name} has layers that forget tokens or keep a state; such "
                    "memory has blocks of its own for each group of layers"
                )

    def _require_keys(self, setup: Setup) -> None:
        """Raise ``PolicyError`` where a server keeps no keys and values."""
        if not setup.deployment.kv_cache:
            raise self.refusal("without a KV cache there are no keys and values to place")


class ContinuousBatching(ServingTechnique):
    """A request joins the batch at any step; at most ``max_seqs`` run.

    Off, batches of ``static_batch`` are formed, padded, and held until their longest member ends. A
    static batch is small where answers must not wait long for others. Under the load of its own
    experiment, several times what such batches sustain, the price shows: a first token shares its
    step with many decodes, and they share theirs with the prompts of new requests.
    """

    experiment = Experiment(prompt_tokens=16, output_tokens=1024, load=8.0)

    max_seqs: Count = 256
    static_batch: Count = 4

    def apply(self, setup: Setup) -> Setup:
        """Admit a request at the next step with room, as chunked and other schedulers do too."""
        if setup.policies.batching in _BY_REQUEST:
            return setup.with_policies(batching="continuous", max_seqs=self.max_seqs)
        return setup.with_policies(max_seqs=self.max_seqs) if self.is_given("max_seqs") else setup

    def off(self, setup: Setup) -> Setup:
        """Hold every batch to its end."""
        return setup.with_policies(batching="static", max_seqs=self.static_batch)


class DynamicInsertion(ServingTechnique):
    """Paddle's dynamic insertion: the slot of an ended answer takes in the next request.

    Both sides have ``slots``. Off, a slot is idle from the end of its answer to that of the
    longest, so the gain in throughput is at most E[max of b m] / E[m] for lengths m and b slots.
    """

    slots: Count = 8

    def apply(self, setup: Setup) -> Setup:
        """Refill the slots one by one."""
        if setup.policies.batching == "insertion" and not self.is_given("slots"):
            return setup
        return setup.with_policies(batching="insertion", max_seqs=self.slots)

    def off(self, setup: Setup) -> Setup:
        """Refill the slots all at once."""
        return setup.with_policies(batching="static", max_seqs=self.slots)


class ChunkedPrefill(ServingTechnique):
    """Steps of at most ``token_budget`` rows: a long prompt runs in chunks beside the decodes.

    Off, every waiting prompt joins a step whole. A prompt of n tokens in chunks of C reads
    n (n + C) / 2C positions of its own keys and values instead of n, and the weights once per step,
    as the decodes do anyway.
    """

    experiment = Experiment(prompt_tokens=1500, output_tokens=128, longest_tokens=3000)

    token_budget: Count = 512

    def apply(self, setup: Setup) -> Setup:
        """Bound the rows of a step."""
        if setup.policies.batching == "chunked" and not self.is_given("token_budget"):
            return setup
        return setup.with_policies(batching="chunked", token_budget=self.token_budget)

    def off(self, setup: Setup) -> Setup:
        """Compute prompts whole, however long the step becomes."""
        return setup.with_policies(batching="continuous", token_budget=_NO_BUDGET)


class PagedAttention(ServingTechnique):
    """KV memory in blocks of ``block_tokens``, mapped when they are needed.

    Off, a request holds one region, sized by ``reservation``. ``attention_slowdown``: how much
    longer decode attention takes when it reads by a table (0.20 to 0.26 in the paper, section 7.1).
    """

    experiment = Experiment(load=0.3)

    block_tokens: Count = 16
    reservation: Reservation = "max"
    attention_slowdown: Annotated[float, Field(ge=0)] = 0.0

    def apply(self, setup: Setup) -> Setup:
        """Map blocks; raise where a layer forgets tokens or keeps a state."""
        self._require_whole_contexts(setup)
        if setup.policies.kv != "paged" or self.is_given("block_tokens"):
            setup = setup.with_policies(kv="paged", block_tokens=self.block_tokens)
        if self.is_given("attention_slowdown"):
            setup = setup.with_kernels(attention_slowdown=1 + self.attention_slowdown)
        return setup

    def off(self, setup: Setup) -> Setup:
        """Reserve whole regions; raise where ``apply`` does."""
        self._require_whole_contexts(setup)
        regions = setup.with_policies(kv="contiguous", reservation=self.reservation)
        return regions.with_kernels(attention_slowdown=1.0)


class PrefixCache(ServingTechnique):
    """Prompts that begin alike compute and keep their beginning once.

    ``index`` finds the beginning (a tree, or ``blocks`` one by one, those of answers too);
    blocks are given up in the order of ``eviction``.
    """

    experiment = Experiment(prompt_tokens=128, shared_tokens=512)

    index: PrefixIndex = "radix"
    eviction: str = "lru"

    def apply(self, setup: Setup) -> Setup:
        """Keep prefixes; raise where there are no keys and values."""
        self._require_keys(setup)
        if setup.policies.prefix_cache and not self.model_fields_set:
            return setup
        return setup.with_policies(
            prefix_cache=True, prefix_index=self.index, eviction=self.eviction
        )

    def off(self, setup: Setup) -> Setup:
        """Let every prompt compute and keep all its tokens."""
        return setup.with_policies(
            prefix_cache=False, host_cache_tokens=0, far_cache_tokens=0,
            far_cache_slowdown=8.0, far_cache_latency_tokens=0, far_cache_shared=False,
        )  # fmt: skip


class CopyOnWrite(ServingTechnique):
    """Several answers to one prompt share its blocks until they write to them.

    It saves memory for requests with ``samples``; off, every answer has a copy of the prompt. Both
    sides compute the prompt once, so the difference is memory alone. (To compute it once per
    answer, send k requests, with or without ``prefix-cache``.)
    """

    experiment = Experiment(samples=4)

    def apply(self, setup: Setup) -> Setup:
        """Share the prompt; raise where a layer forgets tokens or keeps a state."""
        self._require_whole_contexts(setup)
        return setup.with_policies(kv="paged")

    def off(self, setup: Setup) -> Setup:
        """Copy the prompt: each block, counted as before, belongs to one answer.

        Raises ``PolicyError`` beside a prefix cache, which shares the prompt as well.
        """
        if setup.policies.prefix_cache:
            raise self.refusal(
                "with a prefix cache the answers share their prompt anyway; compare with "
                "prefix_cache off"
            )
        self._require_whole_contexts(setup)
        return setup.with_policies(kv="grouped", kv_groups=f"kept:{setup.policies.max_model_len}")


class PrefillDecodeSplit(ServingTechnique):
    """``prefill_replicas`` and ``decode_replicas``; off, as many replicas that do both.

    Keys and values go over a link of ``gb_per_s`` (10^9 bytes) and ``latency_us`` per prefill
    replica. ``layerwise``: a layer is sent while the next one is computed, so that a request waits
    for the share of the last layer only; the link is assumed to keep up.
    """

    prefill_replicas: Count = 1
    decode_replicas: Count = 1
    gb_per_s: Positive = 25.0
    latency_us: Annotated[float, Field(ge=0)] = 0.0
    layerwise: bool = False

    def apply(self, setup: Setup) -> Setup:
        """Split the replicas; raise where there are no whole contexts to send."""
        self._require_whole_contexts(setup)
        overlap = setup.deployment.model.layer_count if self.layerwise else 1
        return setup.with_cluster(
            replicas=1,
            prefill_replicas=self.prefill_replicas,
            decode_replicas=self.decode_replicas,
            link_bytes_per_s=self.gb_per_s * 1e9 * overlap,
            link_latency_s=self.latency_us * 1e-6,
        )

    def off(self, setup: Setup) -> Setup:
        """Let the same number of replicas serve whole requests."""
        replicas = self.prefill_replicas + self.decode_replicas
        return setup.with_cluster(replicas=replicas, prefill_replicas=0, decode_replicas=0)
