"""LLM.int8: int8 products but for the columns of outliers, which stay in fp16."""

from sim.techniques.format_change import FormatChange


class LLMInt8(FormatChange):
    """Saves memory; two products and the sorting between them eat up the speed of int8.

    Decoding is slower than in fp16 (15 to 23 % for BLOOM-176B), prompts gain in wide models only.
    """

    name = "llm-int8"
    formula = "weight bytes 1.01; int8 peak x d / (d + 4096); 0.42 of the bandwidth"
    source = "LLM.int8 (Dettmers 2022); times by Belkada and Dettmers 2022"
