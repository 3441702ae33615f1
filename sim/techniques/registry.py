"""Find a technique by name, with its parameters: ``tensor-parallel:ways=4,latency_us=5``."""

from collections.abc import Iterable

from pydantic import ValidationError

from sim.techniques.attention import (
    CrossLayer,
    Dilated,
    GroupedQuery,
    KVBudget,
    LinearAttention,
    MixtureOfExperts,
    MultiHeadLatent,
    MultiQuery,
    SlidingWindow,
    StateSpace,
    Streaming,
)
from sim.techniques.compression import (
    Distillation,
    SemiStructuredSparsity,
    StructuredPruning,
    UnstructuredPruning,
    WeightSharing,
)
from sim.techniques.decoding import (
    BlockwiseDecoding,
    DiffusionDecoding,
    EarlyExitDecoding,
    ModelCascade,
    SelfSpeculation,
    SpeculativeDecoding,
    TreeSpeculation,
)
from sim.techniques.kernels import AsynchronousSoftmax, FlashAttention, FlashDecoding, KernelFusion
from sim.techniques.memory import KVCache, KVOffload, LowRankKV, WeightOffload
from sim.techniques.numbers import (
    AWQ,
    FP8,
    KVQuantisation,
    LLMInt8,
    PhaseFormats,
    SmoothQuant,
    WeightInt4,
    WeightInt8,
)
from sim.techniques.parallel import (
    ExpertParallel,
    PipelineParallel,
    SequenceParallel,
    TensorParallel,
)
from sim.techniques.serving import (
    ChunkedPrefill,
    ContinuousBatching,
    CopyOnWrite,
    DynamicInsertion,
    PagedAttention,
    PrefillDecodeSplit,
    PrefixCache,
)
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique
from workloads.errors import PolicyError, did_you_mean

TECHNIQUES: dict[str, type[Technique]] = {
    technique.name: technique
    for technique in (
        KVCache,
        ContinuousBatching,
        DynamicInsertion,
        PagedAttention,
        ChunkedPrefill,
        PrefixCache,
        CopyOnWrite,
        PrefillDecodeSplit,
        WeightInt8,
        WeightInt4,
        AWQ,
        LLMInt8,
        SmoothQuant,
        FP8,
        KVQuantisation,
        PhaseFormats,
        StructuredPruning,
        UnstructuredPruning,
        SemiStructuredSparsity,
        Distillation,
        WeightSharing,
        GroupedQuery,
        MultiQuery,
        MultiHeadLatent,
        CrossLayer,
        SlidingWindow,
        Dilated,
        Streaming,
        KVBudget,
        LowRankKV,
        MixtureOfExperts,
        StateSpace,
        LinearAttention,
        WeightOffload,
        KVOffload,
        SpeculativeDecoding,
        TreeSpeculation,
        SelfSpeculation,
        BlockwiseDecoding,
        DiffusionDecoding,
        EarlyExitDecoding,
        ModelCascade,
        FlashAttention,
        FlashDecoding,
        AsynchronousSoftmax,
        KernelFusion,
        TensorParallel,
        PipelineParallel,
        SequenceParallel,
        ExpertParallel,
    )
}


def find_technique(text: str) -> Technique:
    """A technique by name, its parameters after a colon.

    Raises ``PolicyError`` that names the technique, the parameter and what would be right.
    """
    name, _, given = text.partition(":")
    if name not in TECHNIQUES:
        hint = did_you_mean(name, TECHNIQUES, f"known are {', '.join(sorted(TECHNIQUES))}")
        raise PolicyError(f"technique: unknown {name!r}; {hint}")
    return _with_parameters(TECHNIQUES[name], given)


def apply_all(techniques: Iterable[Technique], setup: Setup) -> Setup:
    """``setup`` with every technique on, in the order given."""
    for technique in techniques:
        setup = technique.apply(setup)
    return setup


def _with_parameters(technique: type[Technique], given: str) -> Technique:
    parameters = {}
    for part in filter(None, given.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise PolicyError(f"technique {technique.name}: {part!r} is not KEY=VALUE")
        if key not in technique.model_fields:
            takes = ", ".join(technique.model_fields) or "none"
            hint = did_you_mean(key, technique.model_fields, f"its parameters: {takes}")
            raise PolicyError(f"technique {technique.name}: unknown parameter {key!r}; {hint}")
        parameters[key] = value
    try:
        return technique(**parameters)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "parameters"
        raise PolicyError(f"technique {technique.name}: {key}: {first['msg']}") from error
