"""Find a technique by name, with its parameters: ``tensor-parallel:ways=4,latency_us=5``."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from servetwin.workloads.errors import PluginError, PolicyError, did_you_mean
from servetwin.workloads.key_values import key_values
from servetwin.workloads.plugins import Registry, split_settings

if TYPE_CHECKING:
    from servetwin.sim.techniques.setup import Setup
    from servetwin.sim.techniques.technique import Technique

TECHNIQUES: "Registry[Technique]" = Registry(
    "technique",
    "technique",
    "servetwin.sim.techniques.technique:Technique",
    "**parameters",
    {
        "kv-cache": "servetwin.sim.techniques.memory:KVCache",
        "continuous-batching": "servetwin.sim.techniques.serving:ContinuousBatching",
        "dynamic-insertion": "servetwin.sim.techniques.serving:DynamicInsertion",
        "paged-attention": "servetwin.sim.techniques.serving:PagedAttention",
        "chunked-prefill": "servetwin.sim.techniques.serving:ChunkedPrefill",
        "prefix-cache": "servetwin.sim.techniques.serving:PrefixCache",
        "copy-on-write": "servetwin.sim.techniques.serving:CopyOnWrite",
        "prefill-decode-split": "servetwin.sim.techniques.serving:PrefillDecodeSplit",
        "weight-int8": "servetwin.sim.techniques.numbers:WeightInt8",
        "weight-int4": "servetwin.sim.techniques.numbers:WeightInt4",
        "gptq": "servetwin.sim.techniques.numbers:GPTQ",
        "awq": "servetwin.sim.techniques.numbers:AWQ",
        "gguf": "servetwin.sim.techniques.numbers:BlockFormat",
        "llm-int8": "servetwin.sim.techniques.numbers:LLMInt8",
        "smooth-quant": "servetwin.sim.techniques.numbers:SmoothQuant",
        "fp8": "servetwin.sim.techniques.numbers:FP8",
        "kv-quantisation": "servetwin.sim.techniques.numbers:KVQuantisation",
        "phase-formats": "servetwin.sim.techniques.numbers:PhaseFormats",
        "structured-pruning": "servetwin.sim.techniques.compression:StructuredPruning",
        "unstructured-pruning": "servetwin.sim.techniques.compression:UnstructuredPruning",
        "sparsity-2-4": "servetwin.sim.techniques.compression:SemiStructuredSparsity",
        "distillation": "servetwin.sim.techniques.compression:Distillation",
        "weight-sharing": "servetwin.sim.techniques.compression:WeightSharing",
        "grouped-query": "servetwin.sim.techniques.attention:GroupedQuery",
        "multi-query": "servetwin.sim.techniques.attention:MultiQuery",
        "latent-attention": "servetwin.sim.techniques.attention:MultiHeadLatent",
        "cross-layer": "servetwin.sim.techniques.attention:CrossLayer",
        "sliding-window": "servetwin.sim.techniques.attention:SlidingWindow",
        "dilated": "servetwin.sim.techniques.attention:Dilated",
        "streaming": "servetwin.sim.techniques.attention:Streaming",
        "kv-budget": "servetwin.sim.techniques.attention:KVBudget",
        "low-rank-kv": "servetwin.sim.techniques.memory:LowRankKV",
        "turn-compression": "servetwin.sim.techniques.memory:TurnCompression",
        "experts": "servetwin.sim.techniques.experts:MixtureOfExperts",
        "state-space": "servetwin.sim.techniques.recurrence:StateSpace",
        "linear-attention": "servetwin.sim.techniques.recurrence:LinearAttention",
        "weight-offload": "servetwin.sim.techniques.memory:WeightOffload",
        "kv-offload": "servetwin.sim.techniques.memory:KVOffload",
        "speculative": "servetwin.sim.techniques.drafting:SpeculativeDecoding",
        "tree-speculation": "servetwin.sim.techniques.drafting:TreeSpeculation",
        "self-speculation": "servetwin.sim.techniques.drafting:SelfSpeculation",
        "blockwise": "servetwin.sim.techniques.decoding:BlockwiseDecoding",
        "diffusion": "servetwin.sim.techniques.decoding:DiffusionDecoding",
        "early-exit": "servetwin.sim.techniques.decoding:EarlyExitDecoding",
        "cascade": "servetwin.sim.techniques.decoding:ModelCascade",
        "flash-attention": "servetwin.sim.techniques.kernels:FlashAttention",
        "flash-decoding": "servetwin.sim.techniques.kernels:FlashDecoding",
        "flash-decoding++": "servetwin.sim.techniques.kernels:AsynchronousSoftmax",
        "kernel-fusion": "servetwin.sim.techniques.kernels:KernelFusion",
        "tensor-parallel": "servetwin.sim.techniques.parallel:TensorParallel",
        "pipeline-parallel": "servetwin.sim.techniques.parallel:PipelineParallel",
        "sequence-parallel": "servetwin.sim.techniques.parallel:SequenceParallel",
        "expert-parallel": "servetwin.sim.techniques.parallel:ExpertParallel",
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
