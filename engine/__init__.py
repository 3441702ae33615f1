"""What does happen: a torch decoder under the real policies, behind an OpenAI-compatible API.

``from servetwin.engine import LLM, SamplingParams`` is the engine without a server; torch
comes with the first ``LLM``.
"""

from servetwin.engine.llm import LLM, Generated
from servetwin.engine.sampling.sampling_params import SamplingParams

__all__ = ["LLM", "Generated", "SamplingParams"]
