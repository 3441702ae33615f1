"""What a body's sampling fields become."""

from typing import Any

import pytest

from servetwin.engine.http.protocol import CompletionBody, parse_body
from servetwin.engine.http.sampling_fields import SamplingFields
from servetwin.engine.sampling.sampling_params import EOS_ID, SamplingParams
from tests.support.live_server import COMPLETIONS, LiveServer, with_prompt


def params_of(raw: str) -> SamplingParams:
    body: SamplingFields = parse_body(CompletionBody, f'{{"prompt": "A", {raw}}}'.encode())
    return body.sampling(7, 1000, (EOS_ID,))


@pytest.mark.parametrize(
    ("raw", "fields"),
    [
        ('"n": 1', {}),
        ('"max_tokens": 3, "max_completion_tokens": 4', {"max_tokens": 4}),
        ('"top_p": 0.5, "top_k": 9, "min_p": 0.25', {"top_p": 0.5, "top_k": 9, "min_p": 0.25}),
        ('"top_p": 1, "top_k": -1, "min_p": 0', {}),
        ('"top_p": null, "top_k": null, "stop_token_ids": null, "allowed_token_ids": null', {}),
        (
            '"presence_penalty": 2, "frequency_penalty": -2, "repetition_penalty": 0.5',
            {"presence_penalty": 2, "frequency_penalty": -2, "repetition_penalty": 0.5},
        ),
        ('"logit_bias": {"5": -100, "7": 0.5}', {"logit_bias": ((5, -100.0), (7, 0.5))}),
        ('"stop_token_ids": [5, 6], "stop": "x"', {"stop_token_ids": (5, 6), "stop": ("x",)}),
        ('"allowed_token_ids": [999]', {"allowed_token_ids": (999,)}),
    ],
)
def test_fields_become_parameters(raw: str, fields: dict[str, Any]) -> None:
    assert params_of(raw) == SamplingParams(**{"max_tokens": 7, **fields})


def test_a_number_that_is_none_is_refused(server: LiveServer) -> None:
    for name in ("top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"):
        body = f'{{"prompt": "A", "{name}": NaN}}'
        response = server.client.post(COMPLETIONS, content=body)
        assert (response.status_code, response.json()["error"]["param"]) == (400, name)


@pytest.mark.parametrize("ignore_eos", [False, True])
def test_a_stop_token_ends_an_answer_once_the_minimum_is_out(
    server: LiveServer, ignore_eos: bool
) -> None:
    fields = {"stop_token_ids": [ord("D")], "ignore_eos": ignore_eos, "return_token_ids": True}
    answer = server.client.post(COMPLETIONS, json=with_prompt(max_tokens=9, **fields)).json()
    (choice,) = answer["choices"]
    assert (choice["token_ids"], choice["finish_reason"]) == ([66, 67, 68], "stop")
    fields |= {"min_tokens": 5}
    answer = server.client.post(COMPLETIONS, json=with_prompt(max_tokens=9, **fields)).json()
    assert len(answer["choices"][0]["token_ids"]) == 9
