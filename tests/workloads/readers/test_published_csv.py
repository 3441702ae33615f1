"""Published tables: Azure, BurstGPT, Vidur, and tables of any name."""

import pytest

from servetwin.workloads.readers.registry import READERS
from servetwin.workloads.reading import read_trace
from servetwin.workloads.request import Request
from tests.support.trace_rows import AZURE, BURST_6, BURST_8, VIDUR, Write


def test_azure(write: Write) -> None:
    trace = read_trace(write(AZURE))
    assert trace.requests == (
        Request("some:1", 0.0, 374, 44, source_line=2),
        Request("some:2", 4.314579, 396, 109, source_line=3),
    )
    assert trace.notes == ("1 failed row left out",)


@pytest.mark.parametrize(
    ("stamp", "arrival_s"),
    [
        ("2024-05-10 00:00:01.1234567", 1.1234567),
        ("2024-05-10 00:00:01.123456+00:00", 1.123456),
        ("2024-05-10T00:00:01Z", 1.0),
        ("2024-05-10 02:00:01+02:00", 1.0),
    ],
)
def test_azure_stamps(write: Write, stamp: str, arrival_s: float) -> None:
    trace = read_trace(
        write(f"TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00,1,1\n{stamp},1,1\n")
    )
    assert trace.requests[1].arrival_s == arrival_s


def test_azure_columns_are_found_by_name(write: Write) -> None:
    trace = read_trace(
        write("NumImages,GeneratedTokens,TIMESTAMP,ContextTokens\n2,5,2024-05-10 00:00:00,9\n")
    )
    assert trace.requests == (Request("some:1", 0.0, 9, 5, modal={"images": 2}, source_line=2),)


def test_burstgpt_of_six_columns(write: Write) -> None:
    trace = read_trace(write(BURST_6))
    chat, api = "Conversation log", "API log"
    assert trace.requests == (
        Request("some:1", 0.0, 472, 18, model="ChatGPT", kind=chat, source_line=2),
        Request("some:2", 0.0, 30, 9, model="GPT-4", kind=api, source_line=3),
    )
    assert trace.clock_s == 1.0
    assert trace.notes == (
        "1 row whose total is not the sum",
        "1 failed row left out",
        "100.0% of rows share the stamp of the row before",
    )


def test_burstgpt_of_eight_columns_has_sessions(write: Write) -> None:
    trace = read_trace(write(BURST_8))
    fields = [(r.arrival_s, r.session_id, r.parent_ids, r.turn, r.delay_s) for r in trace]
    assert fields == [
        (0.0, "s1", (), 0, None),
        (0.5, None, (), None, None),
        (30.0, "s1", ("some:1",), 1, 26.0),
        (30.5, "s2", (), 0, None),
        (34.5, "s2", ("some:4",), 1, 0.0),  # it came before the answer did
        (90.0, "s1", ("some:3",), 2, None),  # how long the one before took is not known
    ]
    assert trace.clock_s is None
    assert trace.notes == ("2 rows sent a delay after the parent: for closed-loop replay",)


def test_burstgpt_columns_are_found_by_name(write: Write) -> None:
    def swapped(row: str) -> str:
        return ",".join(reversed(row.split(",")))

    turned = "\n".join(map(swapped, BURST_8.splitlines()))
    assert read_trace(write(turned)) == read_trace(write(BURST_8))


VIDUR_LENGTHS = """num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio
3772,54,3826,69.85
2015,156,2000,12.9
"""


def test_vidur(write: Write) -> None:
    trace = read_trace(write(VIDUR))
    assert trace.requests == (
        Request("some:1", 0.0, 374, 44, source_line=2),
        Request("some:2", 4.314, 396, 109, source_line=3),
    )
    assert trace.notes == ()


def test_vidur_without_arrivals(write: Write) -> None:
    trace = read_trace(write(VIDUR_LENGTHS))
    assert trace.requests == (
        Request("some:1", 0.0, 3772, 54, source_line=2),
        Request("some:2", 0.0, 2015, 156, source_line=3),
    )
    assert trace.notes[:2] == (
        "no arrival times in the file: every request arrives at 0",
        "1 row whose total is not the sum",
    )


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
