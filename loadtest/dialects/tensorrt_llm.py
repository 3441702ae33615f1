"""TensorRT-LLM's own server, ``trtllm-serve``, of OpenAI's API.

Follows TensorRT-LLM's documentation of trtllm-serve and the schema of its requests: prompts of
token ids, ``min_tokens``, ``ignore_eos``, ``continuous_usage_stats``; unknown fields are refused.
Tested against a server that answers as documented, not against TensorRT-LLM. Behind Triton it
speaks the dialect ``triton``.
"""

from typing import ClassVar

from loadtest.dialects.openai import OpenAI


class TensorRTLLM(OpenAI):
    """trtllm-serve."""

    name = "tensorrt-llm"
    owners = frozenset({"tensorrt_llm"})
    guesses_vocab = True
    stream_options: ClassVar = {"include_usage": True, "continuous_usage_stats": True}
