"""Find a technique by name, with its parameters: ``tensor-parallel:ways=4,latency_us=5``."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from workloads.errors import PluginError, PolicyError, did_you_mean
from workloads.key_values import key_values
from workloads.plugins import Registry, split_settings

if TYPE_CHECKING:
    from sim.techniques.setup import Setup
    from sim.techniques.technique import Technique

TECHNIQUES: "Registry[Technique]" = Registry(
    "technique",
    "technique",
    "sim.techniques.technique:Technique",
    "**parameters",
    {
        "kv-cache": "sim.techniques.memory:KVCache",
        "continuous-batching": "sim.techniques.serving:ContinuousBatching",
        "dynamic-insertion": "sim.techniques.serving:DynamicInsertion",
        "paged-attention": "sim.techniques.serving:PagedAttention",
        "chunked-prefill": "sim.techniques.serving:ChunkedPrefill",
        "prefix-cache": "sim.techniques.serving:PrefixCache",
        "copy-on-write": "sim.techniques.serving:CopyOnWrite",
        "prefill-decode-split": "sim.techniques.serving:PrefillDecodeSplit",
        "weight-int8": "sim.techniques.numbers:WeightInt8",
        "weight-int4": "sim.techniques.numbers:WeightInt4",
        "gptq": "sim.techniques.numbers:GPTQ",
        "awq": "sim.techniques.numbers:AWQ",
        "gguf": "sim.techniques.numbers:BlockFormat",
        "llm-int8": "sim.techniques.numbers:LLMInt8",
        "smooth-quant": "sim.techniques.numbers:SmoothQuant",
        "fp8": "sim.techniques.numbers:FP8",
        "kv-quantisation": "sim.techniques.numbers:KVQuantisation",
        "phase-formats": "sim.techniques.numbers:PhaseFormats",
        "structured-pruning": "sim.techniques.compression:StructuredPruning",
        "unstructured-pruning": "sim.techniques.compression:UnstructuredPruning",
        "sparsity-2-4": "sim.techniques.compression:SemiStructuredSparsity",
        "distillation": "sim.techniques.compression:Distillation",
        "weight-sharing": "sim.techniques.compression:WeightSharing",
        "grouped-query": "sim.techniques.attention:GroupedQuery",
        "multi-query": "sim.techniques.attention:MultiQuery",
        "latent-attention": "sim.techniques.attention:MultiHeadLatent",
        "cross-layer": "sim.techniques.attention:CrossLayer",
        "sliding-window": "sim.techniques.attention:SlidingWindow",
        "dilated": "sim.techniques.attention:Dilated",
        "streaming": "sim.techniques.attention:Streaming",
        "kv-budget": "sim.techniques.attention:KVBudget",
        "low-rank-kv": "sim.techniques.memory:LowRankKV",
        "turn-compression": "sim.techniques.memory:TurnCompression",
        "experts": "sim.techniques.experts:MixtureOfExperts",
        "state-space": "sim.techniques.recurrence:StateSpace",
        "linear-attention": "sim.techniques.recurrence:LinearAttention",
        "weight-offload": "sim.techniques.memory:WeightOffload",
        "kv-offload": "sim.techniques.memory:KVOffload",
        "speculative": "sim.techniques.drafting:SpeculativeDecoding",
        "tree-speculation": "sim.techniques.drafting:TreeSpeculation",
        "self-speculation": "sim.techniques.drafting:SelfSpeculation",
        "blockwise": "sim.techniques.decoding:BlockwiseDecoding",
        "diffusion": "sim.techniques.decoding:DiffusionDecoding",
        "early-exit": "sim.techniques.decoding:EarlyExitDecoding",
        "cascade": "sim.techniques.decoding:ModelCascade",
        "flash-attention": "sim.techniques.kernels:FlashAttention",
        "flash-decoding": "sim.techniques.kernels:FlashDecoding",
        "flash-decoding++": "sim.techniques.kernels:AsynchronousSoftmax",
        "kernel-fusion": "sim.techniques.kernels:KernelFusion",
        "tensor-parallel": "sim.techniques.parallel:TensorParallel",
        "pipeline-parallel": "sim.techniques.parallel:PipelineParallel",
        "sequence-parallel": "sim.techniques.parallel:SequenceParallel",
        "expert-parallel": "sim.techniques.parallel:ExpertParallel",
    },
)


def find_technique(text: str) -> "Technique":
    """Return a technique by name or ``path.py:Class``, its parameters after a colon.

    Raises ``PolicyError`` that names the technique, the parameter and what would be right, and
    ``PluginError`` for a class that cannot be used.
    """
    name, given = split_settings(text)
    fields = TECHNIQUES.find(name).model_fields
    parameters = key_values(given, f"technique {name}")
    for key in parameters:
        if key not in fields:
            hint = did_you_mean(key, fields, f"its parameters: {', '.join(fields) or 'none'}")
            raise PolicyError(f"technique {name}: unknown parameter {key!r}; {hint}")
    return _with_parameters(name, parameters)


def apply_all(techniques: Iterable["Technique"], setup: "Setup") -> "Setup":
    """Return ``setup`` with every technique on, in the order given."""
    for technique in techniques:
        setup = technique.apply(setup)
    return setup


def _with_parameters(name: str, parameters: dict[str, str]) -> "Technique":
    from pydantic import ValidationError

    try:
        return TECHNIQUES.build(name, **parameters)
    except (PluginError, ValidationError) as error:
        invalid = error.__cause__ if isinstance(error, PluginError) else error
        if not isinstance(invalid, ValidationError):
            raise
        first = invalid.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "parameters"
        raise PolicyError(
            f"technique {name}: {key}: {first['msg'].removeprefix('Value error, ')}"
        ) from error
