"""Any header may be one of a table; a format that is known comes first where it is whole."""

import pytest

from servetwin.workloads.readers.registry import READERS
from tests.support.trace_rows import AZURE, VIDUR


def reader_of(row: str) -> str | None:
    return next((name for name in READERS if READERS.build(name).recognises(row)), None)


@pytest.mark.parametrize(
    ("row", "name"),
    [
        (AZURE.splitlines()[0], "azure"),
        ("TIMESTAMP,input,GeneratedTokens", "table"),
        (VIDUR.splitlines()[0], "vidur"),
        ("num_prefill_tokens,num_decode_tokens", "vidur"),
        ("created_at,num_prefill_tokens,num_decode_tokens", "table"),
        ("Timestamp,Request tokens,Response tokens", "table"),
        ("prompt,output_tokens", "prompts"),
        ("timestamp,prompt,output_tokens", "table"),
        ("a;b", "table"),
        ("hello", None),
        ('{"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 2}', "native"),
        ('{"arrival_s": 0, "tokens": 1}', "native"),
        ('{"note": 1}', "native"),
        ('{"ts": 0, "prompt_tokens": 1}', "table"),
        ('{"ts": 0, "usage": {"prompt_tokens": 1, "completion_tokens": 2}}', "table"),
        ('{"timestamp": 0, "input_length": 600, "output_length": 5}', "mooncake"),
        ('{"prompt": "a"}', "prompts"),
        ('{"prompt": "a", "completion": "b", "created_at": "2026-11-20 09:00:00"}', "table"),
        ('{"ts": 0, "prompt_tokens"', "native"),
    ],
)
def test_the_reader_of_a_first_row(row: str, name: str | None) -> None:
    assert reader_of(row) == name
