"""A model cut into ``stages`` of equal time that work on different micro-batches at once.

Huang et al., GPipe (2019), for one pass; autoregressive decoding adds that a micro-batch comes back
to the first stage only after the last one.
"""

from sim.theory.checks import check_not_negative, check_positive, check_whole


def pipeline_makespan_s(stages: int, micro_batches: int, stage_s: float) -> float:
    """Seconds until the last micro-batch has left the last stage: (m + p - 1) t."""
    check_whole(stages=stages, micro_batches=micro_batches)
    check_positive(stage_s=stage_s)
    return (micro_batches + stages - 1) * stage_s


def pipeline_bubble(stages: int, micro_batches: int) -> float:
    """Share of one pass that a stage is idle: (p - 1) / (m + p - 1)."""
    check_whole(stages=stages, micro_batches=micro_batches)
    return (stages - 1) / (micro_batches + stages - 1)


def pipeline_first_token_s(stages: int, stage_s: float, hop_s: float = 0.0) -> float:
    """Seconds until a prefill has passed all stages and the hops between them."""
    check_whole(stages=stages)
    check_positive(stage_s=stage_s)
    check_not_negative(hop_s=hop_s)
    return stages * stage_s + (stages - 1) * hop_s


def pipeline_token_interval_s(stages: int, micro_batches: int, stage_s: float) -> float:
    """Seconds between tokens of a sequence, ``micro_batches`` in flight: max(p, m) t."""
    check_whole(stages=stages, micro_batches=micro_batches)
    check_positive(stage_s=stage_s)
    return max(stages, micro_batches) * stage_s


def pipeline_utilisation(stages: int, micro_batches: int) -> float:
    """Share of the time that a stage works in steady decoding: min(1, m / p)."""
    check_whole(stages=stages, micro_batches=micro_batches)
    return min(1.0, micro_batches / stages)
