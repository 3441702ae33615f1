"""Closed forms of single techniques, which their tests hold the simulator to."""

from collections.abc import Sequence

from sim.step_times.roofline.deployment import Deployment, EarlyExit


def token_passes(prompt_tokens: int, output_tokens: int, cached: bool) -> int:
    """Tokens that go through the model to answer one request."""
    n, m = prompt_tokens, output_tokens
    return n + m - 1 if cached else m * n + m * (m - 1) // 2


def fetch_s_per_token(deployment: Deployment) -> float:
    """Seconds per token of a context that comes from the host: its K and V over the link."""
    return whole_kv_bytes(deployment) / deployment.host_bytes_per_s


def recompute_s_per_token(deployment: Deployment) -> float:
    """Seconds per token of a context that is computed anew: 2 P / F, attention left out."""
    form = deployment.prefill
    flops_per_s = deployment.hardware.peak(form.compute) * form.compute_share
    flops = 2 * deployment.model.active_linear_params()
    return flops / (flops_per_s * deployment.efficiency.compute)


def break_even_bytes_per_s(deployment: Deployment) -> float:
    """The link at which fetching a context takes as long as computing it anew."""
    return whole_kv_bytes(deployment) / recompute_s_per_token(deployment)


def whole_kv_bytes(deployment: Deployment) -> float:
    """Keys and values of one token, wherever they lie."""
    return deployment.model.kv_elements_per_token() * deployment.kv_element_bytes


def low_rank_elements(tokens: int, width: int, rank: int) -> int:
    """Elements of one matrix of ``tokens`` rows: r (l + d)."""
    return rank * (tokens + width)


def break_even_rank(tokens: int, width: int) -> float:
    """The rank at which nothing is saved: l d / (l + d)."""
    return tokens * width / (tokens + width)


def score_elements(tokens: int, flash: bool) -> int:
    """Elements in memory per head: all scores, or a running maximum and sum per query."""
    return 2 * tokens if flash else tokens**2


def standard_traffic_elements(tokens: int, head_dim: int) -> int:
    """Order of what a head moves with scores in memory: n d + n^2 (Dao 2022, theorem 2)."""
    return tokens * head_dim + tokens**2


def flash_traffic_elements(tokens: int, head_dim: int, sram_elements: int) -> float:
    """Order of what a head moves with tiles in ``sram_elements``: n^2 d^2 / M (theorem 2)."""
    return tokens**2 * head_dim**2 / sram_elements


def split_gain_limit(compute_units: int, sequences: int, kv_heads: int) -> float:
    """What splitting can gain at most: SMs / (B k), where that is more than one."""
    return max(1.0, compute_units / (sequences * kv_heads))


def early_exit_gain_limit(exits: EarlyExit) -> float:
    """What exits can gain at most, all time being spent in layers: L / E[layers]."""
    return 1 / exits.mean_depth()


def ideal_request_s(
    deployment: Deployment, weights: float, prompt_tokens: int, output_tokens: int
) -> float:
    """One request alone, at the data sheet's limits: a context pass, then a pass per token.

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
    """Share of a batch's time in which a stage is idle: (p - 1) / (m + p - 1)."""
    return (stages - 1) / (micro_batches + stages - 1)


def makespan_s(stages: int, micro_batches_s: Sequence[float]) -> float:
    """From the first micro-batch into the first stage to the last one out of the last.

    ``micro_batches_s`` is what each takes in any one of the equal stages: their sum, and the
    longest once more for every further stage. A stage waits for the longest (Sarathi 2023).
    """
    return sum(micro_batches_s) + (stages - 1) * max(micro_batches_s, default=0.0)


def overlap_block_tokens(flops_per_s: float, link_bytes_per_s: float) -> float:
    """Tokens per device from which attention hides the ring: n / P >= F / BW.

    A round computes 4 d (n / P)^2 FLOPs and sends 4 d n / P bytes: two-byte keys and values of as
    many heads as there are queries, every query seeing every key.
    """
    return flops_per_s / link_bytes_per_s


def chunk_passes(prompt_tokens: int, chunk_tokens: int) -> int:
    """Steps of a prompt: ceil(n / C)."""
    return -(-prompt_tokens // chunk_tokens)


def kv_tokens_read(prompt_tokens: int, chunk_tokens: int) -> int:
    """Positions read over all chunks, each its own and those before: n (n + C) / 2C in whole ones.

    A prompt in one piece reads n.
    """
    whole, rest = divmod(prompt_tokens, chunk_tokens)
    return chunk_tokens * whole * (whole + 1) // 2 + (prompt_tokens if rest else 0)


def routed_cost(small: float, small_share: float, router: float, large: float = 1.0) -> float:
    """A router sends ``small_share`` of the requests to the small model: c_r + q c_s + (1 - q) c_L.

    RouteLLM (Ong 2024).
    """
    return router + small_share * small + (1 - small_share) * large


def small_first_cost(small: float, kept_share: float, large: float = 1.0) -> float:
    """All are tried small, ``kept_share`` of the answers are kept: c_s + (1 - q') c_L.

    FrugalGPT (Chen 2023); the judge of the answers is part of the small model's cost.
    """
    return small + (1 - kept_share) * large


def shared_prefix_hit_rate(requests: int, shared_tokens: int, prompt_tokens: int) -> float:
    """Hit tokens over prompt tokens of equal prompts with one common beginning: (K - 1) s / K n.

    ``shared_tokens`` in whole blocks, and less than the prompt: its last token is always computed.
    """
    return (requests - 1) * shared_tokens / (requests * prompt_tokens)
