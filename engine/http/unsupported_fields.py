"""Fields that would change an answer and that the engine does not implement.

A request with one is refused by name, unless its value changes nothing.
"""

from collections.abc import Mapping
from typing import Any

from servetwin.engine.http.api_errors import ApiError

_NEUTRAL: dict[str, tuple[object, ...]] = {
    **dict.fromkeys(("typical_p", "length_penalty", "num_beams"), (1,)),
    **dict.fromkeys(("use_beam_search", "early_stopping"), (False,)),
    **dict.fromkeys(("include_stop_str_in_output", "continue_final_message"), (False,)),
    **dict.fromkeys(("skip_special_tokens", "add_generation_prompt"), (True,)),
    **dict.fromkeys(("tools", "functions", "bad_words", "documents"), ([],)),
    **dict.fromkeys(("chat_template_kwargs", "vllm_xargs"), ({},)),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "no_repeat_ngram_size": (0,),
    "min_length": (0,),
}
"""The values of a field that change nothing; the first one is proposed."""

_NEVER = frozenset({
    "guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs",
    "structural_tag", "regex", "ebnf", "json_schema", "grammar",
    "prompt_logprobs", "logprob_token_ids", "logits_processors", "logits_processor",
    "custom_logit_processor", "truncate_prompt_tokens", "prompt_embeds", "chat_template",
    "reasoning_effort", "reasoning", "thinking", "thinking_token_budget", "verbosity", "audio",
    "web_search_options", "lora_request", "lora_path", "adapter_id", "mm_processor_kwargs",
    "multi_modal_data", "kv_transfer_params", "input_ids", "input_embeds",
})  # fmt: skip
"""Fields without a value that changes nothing, but null."""


def check_supported(fields: Mapping[str, Any]) -> None:
    """Raise ``ApiError`` (400) that names the first field that would have to change the answer."""
    for name, value in fields.items():
        if name in _NEVER:
            raise _unsupported(name, "is not supported by this server")
        neutral = _NEUTRAL.get(name)
        if neutral is not None and value not in neutral:
            raise _unsupported(name, f"this server supports only {neutral[0]!r}")


def _unsupported(name: str, reason: str) -> ApiError:
    return ApiError(400, f"{name}: {reason}", param=name, code="unsupported_parameter")
