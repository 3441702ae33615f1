"""The engine as a Python object, without a server: prompts in, outputs back."""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from servetwin.engine.checkpoint.find_model import find_model
from servetwin.engine.core.messages import FinishReason, Refused, RequestFailed, TokenEvent
from servetwin.engine.models.computation import Computation
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.sampling.token_state import TokenLogprobs
from servetwin.engine.serve_options import ServeOptions
from servetwin.engine.text.text_stream import OutputText
from servetwin.engine.text.tokenizer import Chat, Message
from servetwin.policies.config import PolicyConfig
from servetwin.workloads.errors import EngineError

# A text, or the token ids of one.
Prompt = str | Sequence[int]


class Generated(NamedTuple):
    """An output of a prompt."""

    text: str
    token_ids: list[int]
    finish_reason: FinishReason
    logprobs: list[TokenLogprobs] | None = None
    """Of each token, where ``SamplingParams.logprobs`` asks for them."""
    prompt_logprobs: list[TokenLogprobs | None] | None = None
    """Of each token of the prompt, likewise; the first has none."""


class LLM:
    """A model that answers prompts, in batches as its policies decide.

    ``model`` is a preset's name or the folder of a checkpoint; ``policies`` are those of the server
    by default, with contexts no longer than the model's; ``computation`` are fields of
    ``Computation``, such as ``device``, ``dtype``, ``threads`` or ``weight_format``. Raises
    ``ServetwinError`` for a model, policies or a device that do not exist or do not fit.
    """

    def __init__(
        self,
        model: str = "base",
        *,
        policies: PolicyConfig | None = None,
        seed: int = 0,
        **computation: Any,
    ) -> None:
        from servetwin.engine.core.build import build_core  # torch is imported here

        source = find_model(model)
        options = ServeOptions(
            model, policies or source.policies(), computation=Computation(**computation), seed=seed
        )
        self._core, self.facts = build_core(options)
        self._tokenizer = source.tokenizer()

    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] = SamplingParams(64),  # noqa: B008
    ) -> list[Generated]:
        """Return the output of each prompt, with the same parameters or each with its own.

        Where they want ``n`` answers, these follow each other. Raises ``EngineError`` for a prompt
        that the model or its memory cannot take; then none is answered.
        """
        requests = self._requests(prompts, sampling_params)
        try:
            for request_id, (token_ids, params) in requests.items():
                refusal = self._core.add(request_id, token_ids, params, self._core.clock())
                if refusal:
                    raise EngineError(f"prompt {request_id}: {refusal.reason}")
            tokens = self._run(requests)
        finally:
            for request_id in requests:
                self._core.abort(request_id)
        return [
            self._read(tokens[name, sample], params)
            for name, (_, params) in requests.items()
            for sample in range(params.n)
        ]

    def chat(
        self,
        messages: Sequence[Message],
        sampling_params: SamplingParams = SamplingParams(64),  # noqa: B008, it is frozen
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> Generated:
        """Return the assistant's answer to ``messages``, put by the model's chat template."""
        if sampling_params.n > 1:
            raise EngineError("n: a chat has one answer here; use generate for several")
        ids = self._tokenizer.chat_ids(Chat(messages, tools))
        return self.generate([ids], sampling_params)[0]

    def _requests(
        self, prompts: Sequence[Prompt], params: SamplingParams | Sequence[SamplingParams]
    ) -> dict[str, tuple[list[int], SamplingParams]]:
        """Return token ids and parameters by the place of each prompt."""
        if isinstance(prompts, str):
            raise EngineError("prompts: must be a list; put the one prompt in brackets")
        each = [params] * len(prompts) if isinstance(params, SamplingParams) else list(params)
        if len(each) != len(prompts):
            raise EngineError(f"{len(each)} sampling parameters for {len(prompts)} prompts")
        return {
            str(place): (self._token_ids(place, prompt), self._for_model(place, one))
            for place, (prompt, one) in enumerate(zip(prompts, each, strict=True))
        }

    def _token_ids(self, place: int, prompt: Prompt) -> list[int]:
        ids = self._tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        if not ids:
            raise EngineError(f"prompt {place}: is empty")
        self._check_tokens(place, ids)
        return ids

    def _for_model(self, place: int, params: SamplingParams) -> SamplingParams:
        """Return the parameters with the model's ends of sequence."""
        biased = [token for token, _ in params.logit_bias]
        self._check_tokens(place, (*params.stop_token_ids, *params.allowed_token_ids, *biased))
        if params.adapter is not None and params.adapter not in self.facts["adapters"]:
            raise EngineError(f"prompt {place}: there is no adapter {params.adapter!r}")
        return replace(params, eos_ids=self._tokenizer.eos_ids)

    def _check_tokens(self, place: int, ids: Sequence[int]) -> None:
        last = self.facts["vocab_size"] - 1
        for token in ids:
            if not 0 <= token <= last:
                raise EngineError(f"prompt {place}: token {token} is not in 0 .. {last}")

    def _run(self, requests: Mapping[str, object]) -> dict[tuple[str, int], list[TokenEvent]]:
        """Run steps until all have ended; return the tokens of each answer."""
        core = self._core
        tokens = defaultdict[tuple[str, int], list[TokenEvent]](list)
        while core.unfinished:
            now_s = core.clock()
            events = core.step(now_s)
            for event in (*core.refusals(), *(events or ())):
                if isinstance(event, Refused | RequestFailed):
                    raise EngineError(f"prompt {event.request_id}: {event.reason}")
                tokens[event.request_id, event.sample].append(event)
            if events is None:
                wake_s = core.scheduler.wake_s()
                time.sleep(max(0.0, (wake_s or now_s) - core.clock()))
        return tokens

    def _read(self, tokens: list[TokenEvent], params: SamplingParams) -> Generated:
        text = OutputText(self._tokenizer, params)
        pieces = [text.read(one.token_id, one.finish_reason is not None) for one in tokens]
        reason = tokens[-1].finish_reason
        assert reason is not None
        logprobs = [one.logprobs for one in tokens if one.logprobs is not None]
        ids = [one.token_id for one in tokens]
        prompt = list(tokens[0].prompt_logprobs) if tokens[0].prompt_logprobs else None
        return Generated("".join(pieces), ids, reason, logprobs or None, prompt)
