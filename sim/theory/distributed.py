"""One model on several devices: pipelines of equal stages, prefill and decode on separate pools.

Pipelines: Huang et al., GPipe (2019), for one pass; in autoregressive decoding a micro-batch comes
back to the first stage only after the last one. Disaggregation: equal prompts that take
``prefill_s`` on one device, Poisson arrivals; the forms are those of Zhong et al., DistServe (OSDI
2024), section 3.1, each an M/D/1 queue.
"""

from servetwin.sim.theory.checks import check_not_negative, check_positive, check_whole
from servetwin.sim.theory.single_server import md1_wait_s


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
