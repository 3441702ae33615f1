"""What does happen: a torch decoder under the real policies, behind an OpenAI-compatible API.

``from engine import LLM, SamplingParams`` is the engine without a server; torch comes with the
first ``LLM``.
"""

from engine.llm import LLM, Generated
from engine.sampling.sampling_params import SamplingParams

__all__ = ["LLM", "Generated", "SamplingParams"]
