"""Find a technique by name, with its parameters: ``tensor-parallel:ways=4,latency_us=5``."""

from collections.abc import Iterable

from pydantic import ValidationError

from sim.techniques.asynchronous_softmax import AsynchronousSoftmax
from sim.techniques.awq import AWQ
from sim.techniques.blockwise import BlockwiseDecoding
from sim.techniques.cascade import ModelCascade
from sim.techniques.chunked_prefill import ChunkedPrefill
from sim.techniques.continuous_batching import ContinuousBatching
from sim.techniques.copy_on_write import CopyOnWrite
from sim.techniques.cross_layer import CrossLayer
from sim.techniques.diffusion import DiffusionDecoding
from sim.techniques.dilated import Dilated
from sim.techniques.distillation import Distillation
from sim.techniques.dynamic_insertion import DynamicInsertion
from sim.techniques.early_exit import EarlyExitDecoding
from sim.techniques.expert_parallel import ExpertParallel
from sim.techniques.experts import MixtureOfExperts
from sim.techniques.flash_attention import FlashAttention
from sim.techniques.flash_decoding import FlashDecoding
from sim.techniques.fp8 import FP8
from sim.techniques.grouped_query import GroupedQuery
from sim.techniques.kernel_fusion import KernelFusion
from sim.techniques.kv_budget import KVBudget
from sim.techniques.kv_cache import KVCache
from sim.techniques.kv_offload import KVOffload
from sim.techniques.kv_quantisation import KVQuantisation
from sim.techniques.latent_attention import MultiHeadLatent
from sim.techniques.linear_attention import LinearAttention
from sim.techniques.llm_int8 import LLMInt8
from sim.techniques.low_rank_kv import LowRankKV
from sim.techniques.multi_query import MultiQuery
from sim.techniques.paged_attention import PagedAttention
from sim.techniques.phase_formats import PhaseFormats
from sim.techniques.pipeline_parallel import PipelineParallel
from sim.techniques.prefill_decode_split import PrefillDecodeSplit
from sim.techniques.prefix_cache import PrefixCache
from sim.techniques.self_speculation import SelfSpeculation
from sim.techniques.semi_structured_sparsity import SemiStructuredSparsity
from sim.techniques.sequence_parallel import SequenceParallel
from sim.techniques.setup import Setup
from sim.techniques.sliding_window import SlidingWindow
from sim.techniques.smooth_quant import SmoothQuant
from sim.techniques.speculative import SpeculativeDecoding
from sim.techniques.state_space import StateSpace
from sim.techniques.streaming import Streaming
from sim.techniques.structured_pruning import StructuredPruning
from sim.techniques.technique import Technique
from sim.techniques.tensor_parallel import TensorParallel
from sim.techniques.tree_speculation import TreeSpeculation
from sim.techniques.unstructured_pruning import UnstructuredPruning
from sim.techniques.weight_int4 import WeightInt4
from sim.techniques.weight_int8 import WeightInt8
from sim.techniques.weight_offload import WeightOffload
from sim.techniques.weight_sharing import WeightSharing
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
