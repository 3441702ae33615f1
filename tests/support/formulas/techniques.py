"""Closed forms of single techniques, which tests hold the simulator to and tables print."""

from collections.abc import Sequence

from servetwin.sim.step_times.roofline.deployment import Deployment, EarlyExit


def token_passes(prompt_tokens: int, output_tokens: int, cached: bool) -> int:
    """Return the tokens that go through the model to answer one request."""
    n, m = prompt_tokens, output_tokens
    return n + m - 1 if cached else m * n + m * (m - 1) // 2


def fetch_s_per_token(deployment: Deployment) -> float:
    """Return the seconds per token of a context from the host: its K and V over the link."""
    return whole_kv_bytes(deployment) / deployment.host_bytes_per_s


def recompute_s_per_token(deployment: Deployment) -> float:
    """Return the seconds per token of a context computed anew: 2 P / F, without attention."""
    form = deployment.prefill
    flops_per_s = deployment.hardware.peak(form.compute) * form.compute_share
    flops = 2 * deployment.model.active_linear_params()
    return flops / (flops_per_s * deployment.efficiency.compute)


def break_even_bytes_per_s(deployment: Deployment) -> float:
    """Return the link at which fetching a context takes as long as computing it anew."""
    return whole_kv_bytes(deployment) / recompute_s_per_token(deployment)


def whole_kv_bytes(deployment: Deployment) -> float:
    """Return the bytes of keys and values of one token, wherever they lie."""
    return deployment.model.kv_elements_per_token() * deployment.kv_element_bytes


def low_rank_elements(tokens: int, width: int, rank: int) -> int:
    """Return the elements of one matrix of ``tokens`` rows: r (l + d)."""
    return rank * (tokens + width)


def break_even_rank(tokens: int, width: int) -> float:
    """Return the rank at which nothing is saved: l d / (l + d)."""
    return tokens * width / (tokens + width)


def score_elements(tokens: int, flash: bool) -> int:
    """Return the elements in memory per head: all scores, or a maximum and sum per query."""
    return 2 * tokens if flash else tokens**2


def standard_traffic_elements(tokens: int, head_dim: int) -> int:
    """Return the order of a head's traffic with scores in memory: n d + n^2 (Dao 2022)."""
    return tokens * head_dim + tokens**2


def flash_traffic_elements(tokens: int, head_dim: int, sram_elements: int) -> float:
    """Return the order of a head's traffic with tiles in M elements: n^2 d^2 / M (Dao 2022)."""
    return tokens**2 * head_dim**2 / sram_elements


def split_gain_limit(compute_units: int, sequences: int, kv_heads: int) -> float:
    """Return what splitting can gain at most: SMs / (B k), where that is more than one."""
    return max(1.0, compute_units / (sequences * kv_heads))


def early_exit_gain_limit(exits: EarlyExit) -> float:
    """Return what exits can gain at most, all time being spent in layers: L / E[layers]."""
    return 1 / exits.mean_depth()


def ideal_request_s(
    deployment: Deployment, weights: float, prompt_tokens: int, output_tokens: int
) -> float:
    """Return the time of one request alone, at the data sheet's limits: all of its passes.

    Each pass takes the longer of 2 P FLOPs a token (P: the layers) and reading all ``weights``;
    attention, keys and values, and messages are left out.
    """
    passes = ((deployment.prefill, prompt_tokens, 1), (deployment.decode, 1, output_tokens - 1))
    total = 0.0
    for form, tokens, times in passes:
        flops = 2 * deployment.model.active_linear_params() * tokens
        compute_s = flops / (deployment.hardware.peak(form.compute) * form.compute_share)
        memory_s = weights * form.weight_bytes / deployment.hardware.memory_bytes_per_s
        total += times * max(compute_s, memory_s)
    return total / deployment.parallel.devices


def bubble_share(stages: int, micro_batches: int) -> float:
    """Return the share of a batch's time in which a stage is idle: (p - 1) / (m + p - 1)."""
    return (stages - 1) / (micro_batches + stages - 1)


def makespan_s(stages: int, micro_batches_s: Sequence[float]) -> float:
    """Return the seconds from the first micro-batch's start to the last one's end, all stages.

    ``micro_batches_s`` is what each takes in any one of the equal stages: their sum, and the
    longest once more for every further stage. A stage waits for the longest (Sarathi 2023).
    """
    return sum(micro_batches_s) + (stages - 1) * max(micro_batches_s, default=0.0)


def overlap_block_tokens(flops_per_s: float, link_bytes_per_s: float) -> float:
    """Return the tokens per device from which attention hides the ring: n / P >= F / BW.

    A round computes 4 d (n / P)^2 FLOPs and sends 4 d n / P bytes: two-byte keys and values of as
    many heads as there are queries, every query seeing every key.
    """
    return flops_per_s / link_bytes_per_s


def chunk_passes(prompt_tokens: int, chunk_tokens: int) -> int:
    """Return the steps of a prompt: ceil(n / C)."""
    return -(-prompt_tokens // chunk_tokens)


def kv_tokens_read(prompt_tokens: int, chunk_tokens: int) -> int:
    """Return the positions read by all chunks, each its own and the earlier: n (n + C) / 2C.

    A prompt in one piece reads n.
    """
    whole, rest = divmod(prompt_tokens, chunk_tokens)
    return chunk_tokens * whole * (whole + 1) // 2 + (prompt_tokens if rest else 0)


def routed_cost(small: float, small_share: float, router: float, large: float = 1.0) -> float:
    """Return the cost of routing: c_r + q c_s + (1 - q) c_L, ``small_share`` q to the small model.

    RouteLLM (Ong 2024).
    """
    return router + small_share * small + (1 - small_share) * large


def small_first_cost(small: float, kept_share: float, large: float = 1.0) -> float:
    """Return the cost of trying all small, ``kept_share`` kept: c_s + (1 - q') c_L.

    FrugalGPT (Chen 2023); the judge of the answers is part of the small model's cost.
    """
    return small + (1 - kept_share) * large


def shared_prefix_hit_rate(requests: int, shared_tokens: int, prompt_tokens: int) -> float:
    """Return hit over prompt tokens of equal prompts with one common beginning: (K - 1) s / K n.

    ``shared_tokens`` in whole blocks, and less than the prompt: its last token is always computed.
    """
    return (requests - 1) * shared_tokens / (requests * prompt_tokens)
