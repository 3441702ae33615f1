"""One model on several devices, and where KV memory goes.

Pipelines: Huang et al., GPipe (2019), for one pass; in autoregressive decoding a micro-batch comes
back to the first stage only after the last one. Disaggregation: equal prompts that take
``prefill_s`` on one device, Poisson arrivals; the forms are those of Zhong et al., DistServe (OSDI
2024), section 3.1, each an M/D/1 queue. Memory: time averages weigh a request by its output length,
since it holds memory while it generates, and take lengths as continuous: half a token of error at
most. The vocabulary of wastes is that of Kwon et al., PagedAttention (SOSP 2023), section 3.1.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from servetwin.policies.config import Reservation
from tests.support.theory.queues import (
    TheoryError,
    check_not_negative,
    check_positive,
    check_whole,
    md1_wait_s,
)


def pipeline_makespan_s(stages: int, micro_batches: int, stage_s: float) -> float:
    """Return the seconds until the last micro-batch has left the last stage: (m + p - 1) t."""
    check_whole(stages=stages, micro_batches=micro_batches)
    check_positive(stage_s=stage_s)
    return (micro_batches + stages - 1) * stage_s


def pipeline_bubble(stages: int, micro_batches: int) -> float:
    """Return the share of one pass that a stage is idle: (p - 1) / (m + p - 1)."""
    check_whole(stages=stages, micro_batches=micro_batches)
    return (stages - 1) / (micro_batches + stages - 1)


def pipeline_first_token_s(stages: int, stage_s: float, hop_s: float = 0.0) -> float:
    """Return the seconds until a prefill has passed all stages and the hops between them."""
    check_whole(stages=stages)
    check_positive(stage_s=stage_s)
    check_not_negative(hop_s=hop_s)
    return stages * stage_s + (stages - 1) * hop_s


def pipeline_token_interval_s(stages: int, micro_batches: int, stage_s: float) -> float:
    """Return the seconds between tokens, ``micro_batches`` in flight: max(p, m) t."""
    check_whole(stages=stages, micro_batches=micro_batches)
    check_positive(stage_s=stage_s)
    return max(stages, micro_batches) * stage_s


def pipeline_utilisation(stages: int, micro_batches: int) -> float:
    """Return the share of the time that a stage works in steady decoding: min(1, m / p)."""
    check_whole(stages=stages, micro_batches=micro_batches)
    return min(1.0, micro_batches / stages)


def prefill_ttft_s(rate_per_s: float, prefill_s: float) -> float:
    """Return the mean time to first token on one device: D + R D^2 / (2 (1 - R D))."""
    return prefill_s + md1_wait_s(rate_per_s, prefill_s)


def pipelined_prefill_ttft_s(rate_per_s: float, prefill_s: float, stages: int = 2) -> float:
    """Return the mean time to first token on ``stages`` equal stages; only the first queues.

    Two stages: D + R D^2 / (4 (2 - R D)).
    """
    check_whole(stages=stages)
    return prefill_s + md1_wait_s(rate_per_s, prefill_s / stages)


def tensor_parallel_prefill_ttft_s(rate_per_s: float, prefill_s: float, speedup: float) -> float:
    """Return the mean time to first token of devices ``speedup`` times as fast as one.

    D / K + R D^2 / (2 K (K - R D)).
    """
    check_positive(speedup=speedup)
    return prefill_ttft_s(rate_per_s, prefill_s / speedup)


def kv_transfer_s(
    prompt_tokens: int, kv_bytes_per_token: float, bytes_per_s: float, latency_s: float = 0.0
) -> float:
    """Return the seconds to send the keys and values of a prompt, nothing overlapped."""
    check_whole(prompt_tokens=prompt_tokens)
    check_positive(kv_bytes_per_token=kv_bytes_per_token, bytes_per_s=bytes_per_s)
    check_not_negative(latency_s=latency_s)
    return prompt_tokens * kv_bytes_per_token / bytes_per_s + latency_s


def goodput_per_device_per_s(
    prefill_devices: int, prefill_rate_per_s: float, decode_devices: int, decode_rate_per_s: float
) -> float:
    """Return the requests per second and device that both pools sustain."""
    check_whole(prefill_devices=prefill_devices, decode_devices=decode_devices)
    check_positive(prefill_rate_per_s=prefill_rate_per_s, decode_rate_per_s=decode_rate_per_s)
    slower = min(prefill_devices * prefill_rate_per_s, decode_devices * decode_rate_per_s)
    return slower / (prefill_devices + decode_devices)


IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RegionUse:
    """Time-averaged tokens of one running request's region.

    ``live_tokens`` hold keys and values, ``reserved_tokens`` will before the request ends; the rest
    of ``allocated_tokens`` never does.
    """

    live_tokens: float
    reserved_tokens: float
    allocated_tokens: float

    @property
    def internal_waste_tokens(self) -> float:
        """Allocated and never used."""
        return self.allocated_tokens - self.live_tokens - self.reserved_tokens

    @property
    def shares(self) -> dict[str, float]:
        """Live, reserved and wasted, as shares of what is allocated; they add up to 1."""
        live, reserved, wasted = self.live_tokens, self.reserved_tokens, self.internal_waste_tokens
        parts = {"live": live, "reserved": reserved, "internal_waste": wasted}
        return {name: tokens / self.allocated_tokens for name, tokens in parts.items()}


def region_use(
    prompt_tokens: float, output_tokens: float, output_cv: float, region_tokens: float | None = None
) -> RegionUse:
    """Return the use of regions, from mean lengths and the variation of the outputs.

    ``region_tokens`` None is a region of the exact final length, not rounded up; else all have that
    many, which no request may exceed. With Z = E[o^2] / E[o] and prompts independent of outputs:
    live E[p] + Z / 2, reserved Z / 2, allocated E[p] + Z or the fixed size.
    """
    check_positive(prompt_tokens=prompt_tokens, output_tokens=output_tokens)
    check_not_negative(output_cv=output_cv)
    half = output_tokens * (1 + output_cv**2) / 2
    final = prompt_tokens + 2 * half
    if region_tokens is not None and region_tokens < final:
        raise TheoryError(
            f"regions of {region_tokens:g} tokens cannot hold requests of {final:g} on time average"
        )
    return RegionUse(prompt_tokens + half, half, final if region_tokens is None else region_tokens)


def sampled_region_use(
    prompts: npt.ArrayLike,
    outputs: npt.ArrayLike,
    reservation: Reservation,
    max_model_len: int,
    *,
    rounded: bool = True,
) -> RegionUse:
    """Return the use of the regions of contiguous memory, for a sample of paired lengths.

    Regions are as long as the buddy allocator makes them; not ``rounded``, as long as was asked.
    """
    prompt, output = _lengths(prompts, outputs)
    regions = _regions(prompt, output, reservation, max_model_len)
    if rounded:
        regions = _powers_of_two(regions)
    reserved = float(np.average(output, weights=output)) / 2
    live = float(np.average(prompt, weights=output)) + reserved
    return RegionUse(live, reserved, float(np.average(regions, weights=output)))


def mean_paged_waste_tokens(block_tokens: int) -> float:
    """Return the unused tokens of a last block, all remainders alike: (block - 1) / 2."""
    check_whole(block_tokens=block_tokens)
    return (block_tokens - 1) / 2


def sampled_paged_waste_tokens(
    prompts: npt.ArrayLike, outputs: npt.ArrayLike, block_tokens: int
) -> float:
    """Return the time average of unused tokens over the lengths that a sample passes through."""
    check_whole(block_tokens=block_tokens)
    prompt, output = _lengths(prompts, outputs)
    wasted = _waste_up_to(prompt + output, block_tokens) - _waste_up_to(prompt, block_tokens)
    return float(wasted.sum() / output.sum())


@dataclass(frozen=True, slots=True)
class ForkedBlocks:
    """Blocks of several samples of one prompt at their end, shared or not, and blocks copied."""

    blocks: int
    unshared_blocks: int
    copies: int


def copy_on_write(
    prompt_tokens: int, output_tokens: int, samples: int, block_tokens: int
) -> ForkedBlocks:
    """Return the blocks of samples that share their prompt until they write to its last block.

    floor(p / b) + k ceil((p mod b + o) / b) blocks; k - 1 copies where p is no multiple of b, for
    the last owner writes in place. Kwon et al., section 4.4.
    """
    check_whole(prompt_tokens=prompt_tokens, output_tokens=output_tokens)
    check_whole(samples=samples, block_tokens=block_tokens)
    shared, remainder = divmod(prompt_tokens, block_tokens)
    written = -(-(remainder + output_tokens) // block_tokens)
    copies = samples - 1 if remainder else 0
    return ForkedBlocks(shared + samples * written, samples * (shared + written), copies)


def _lengths(prompts: npt.ArrayLike, outputs: npt.ArrayLike) -> tuple[IntArray, IntArray]:
    prompt, output = np.asarray(prompts, np.int64), np.asarray(outputs, np.int64)
    if prompt.shape != output.shape or prompt.size == 0:
        raise TheoryError("a sample wants as many prompts as outputs, and at least one of each")
    check_whole(shortest_prompt=prompt.min(), shortest_output=output.min())
    return prompt, output


def _regions(
    prompt: IntArray, output: IntArray, reservation: Reservation, max_model_len: int
) -> IntArray:
    """Return sizes as asked of the buddy allocator, which rounds them up to powers of two."""
    if (longest := (prompt + output).max()) > max_model_len:
        raise TheoryError(f"a request of {longest} tokens exceeds max_model_len {max_model_len}")
    if reservation == "max":
        return np.full_like(prompt, max_model_len)
    lengths = _powers_of_two(output) if reservation == "pow2" else output
    regions: IntArray = np.minimum(prompt + lengths, max_model_len)
    return regions


def _powers_of_two(tokens: IntArray) -> IntArray:
    return np.array([1 << (n - 1).bit_length() for n in tokens.tolist()], np.int64)


def _waste_up_to(lengths: IntArray, block_tokens: int) -> IntArray:
    """Sum of (-l) mod block over l = 1 ... length."""
    blocks, rest = np.divmod(lengths, block_tokens)
    whole = blocks * (block_tokens * (block_tokens - 1) // 2)
    part: IntArray = whole + rest * block_tokens - rest * (rest + 1) // 2
    return part
