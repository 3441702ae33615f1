"""All tables of the notes that figures here are compared with, by name."""

from tests.support.published import (
    compression,
    deployment,
    frameworks,
    intensity,
    lecture,
    models,
    overview,
    speed_ups,
)
from tests.support.published.claim import PublishedTable

TABLES: dict[str, PublishedTable] = {
    "metrics": PublishedTable("metrics of three requests", "1.1.1", overview.metrics),
    "kv-cache": PublishedTable("1000 tokens in, 250 out", "1.1.3 C3", overview.kv_cache),
    "attention-kernels": PublishedTable(
        "how attention fills a device, and what it keeps", "1.1.6, 1.1.10, 2.7",
        overview.attention_kernels,
    ),
    "several-tokens": PublishedTable(
        "several tokens a pass, or fewer layers", "1.1.12 to 1.1.16", overview.several_tokens
    ),
    "speculation": PublishedTable("drafts in a row", "1.1.13, 1.2.15, 2.16", overview.speculation),
    "volumes": PublishedTable("services a day", "1.2.1", lecture.volumes),
    "products": PublishedTable("FLOP/byte in bf16", "1.2.4 to 1.2.6", lecture.products),
    "latency": PublishedTable("Llama-2-13B on an H100", "1.2.7, 1.2.8", lecture.latencies),
    "kept-keys": PublishedTable(
        "latents, shared layers and windows", "1.2.10 to 1.2.12, 2.3", lecture.kept_keys
    ),
    "precisions": PublishedTable("bytes of a weight", "1.2.14", lecture.precisions),
    "affine-quantisation": PublishedTable(
        "int8 codes of -1 to 3", "1.3.1", compression.affine_quantisation
    ),
    "distillation": PublishedTable("the loss of a student", "1.3.2", compression.distillation),
    "experts": PublishedTable("Mixtral 8x7B", "1.3.4, 2.4", compression.experts),
    "framework-weights": PublishedTable(
        "Llama-2-7B in few bits", "1.3.8", compression.framework_weights
    ),
    "frameworks": PublishedTable(
        "vLLM's throughput over that of Transformers", "1.3.7", frameworks.over_transformers
    ),
    "block-shapes": PublishedTable("matrices of a block, Llama-2-7B", "1.4.1", intensity.shapes),
    "intensity": PublishedTable(
        "FLOP per element, Llama-2-7B", "1.4.2 to 1.4.4", intensity.intensities
    ),
    "small-card": PublishedTable("an RTX 4060", "1.4.5", intensity.small_card),
    "token-work": PublishedTable(
        "a token of Llama-2-7B, in 2^20", "1.4.6, 1.4.7", intensity.token_products
    ),
    "kv-sizes": PublishedTable(
        "keys and values of Llama-2-7B", "1.4.8, 1.4.12", intensity.kept_tokens
    ),
    "streamed-speculation": PublishedTable(
        "Llama-2-13B in 7.7 GB behind 4 GB/s", "1.4.13", intensity.streamed_speculation
    ),
    "175b-phases": PublishedTable(
        "GPT-3 175B, 1000 in, 250 out", "1.5.1 to 1.5.6", deployment.phases
    ),
    "175b-traffic": PublishedTable("traffic of a batch of GPT-3 175B", "1.5.5", deployment.traffic),
    "phase-formats": PublishedTable(
        "a format for each phase, 175B on 8 A100", "1.5.9", deployment.phase_formats
    ),
    "published-over-ideal": PublishedTable(
        "measured speed-ups over the ideal", "1.2.14, 1.5.10, 2.16", speed_ups.over_ideal
    ),
    "ideal-steps": PublishedTable("Llama-2-7B on an A100, ms", "2.1", models.ideal_steps),
    "parallel": PublishedTable("several devices", "1.1.5, 2.8 to 2.10", models.parallel),
    "serving": PublishedTable("chunks, prefixes, blocks", "2.11 to 2.14", models.serving),
    "offloading": PublishedTable("OPT-13B: fetch or compute anew", "2.15", models.offloading),
    "states": PublishedTable("models without keys and values", "2.17", models.states),
    "disaggregation": PublishedTable("prefill and decode apart", "2.19", models.disaggregation),
    "queues": PublishedTable("waits of queues", "4 Q1", models.queues),
}  # fmt: skip
