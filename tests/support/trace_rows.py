"""Rows of public trace formats, in small."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from servetwin.workloads.reading import read_trace
from servetwin.workloads.trace import Trace
from tests.support.paths import TRACES

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:51.0000000,9,0"""


Write = Callable[[str], Path]


def shared(name: str) -> Path:
    path = TRACES / name
    if not path.exists():
        pytest.skip(f"{name} is not beside the repository")
    return path


@lru_cache(maxsize=4)
def shared_trace(name: str) -> Trace:
    """Read a public trace, once for the tests of a process that follow each other."""
    return read_trace(shared(name))


def changed(record: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in (record | changes).items() if value != "absent"}


def figures(trace: Trace) -> list[str]:
    prompts = np.array([r.prompt_tokens for r in trace])
    outputs = np.array([r.output_tokens for r in trace])
    cells = [f"{len(trace):,}"]
    for tokens in (prompts, outputs):
        percentiles = np.percentile(tokens, (50, 90, 99, 100))
        cells += [f"{tokens.mean():,.1f}", *(f"{value:,.0f}" for value in percentiles)]
    return [*cells, f"{spearmanr(prompts, outputs).statistic:.3f}"]


VIDUR = """arrived_at,num_prefill_tokens,num_decode_tokens
0.0,374,44
4.314,396,109
"""


def lines(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def chat(number: int, parent: int, ids: Sequence[int], **changes: Any) -> dict[str, Any]:
    record = {
        "chat_id": number,
        "parent_chat_id": parent,
        "timestamp": number + 0.25,
        "input_length": 16 * len(ids),
        "output_length": 3,
        "type": "text",
        "turn": 1 if parent == -1 else 2,
        "hash_ids": list(ids),
    }
    return changed(record, changes)


def round_(index: int, *events: tuple[str, float], **changes: Any) -> dict[str, Any]:
    start = datetime(2026, 6, 1, 5, 40, tzinfo=UTC)
    stamps = [
        (kind, (start + timedelta(seconds=at_s)).isoformat(timespec="milliseconds"))
        for kind, at_s in events or [("user_message", 0.0)]
    ]
    record = {
        "session_id": "claude:1",
        "round_index": index,
        "model": "big",
        "project": "p",
        "input_tokens_total": 100 + index,
        "prefix_tokens": 50,
        "output_tokens": 9,
        "reasoning_output_tokens": None,
        "first_input_event_type": "user_message",
        "timing_events": [
            {"event_type": kind, "timestamp": stamp.replace("+00:00", "Z")}
            for kind, stamp in stamps
        ],
    }
    return changed(record, changes)


BURST_6 = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
5,GPT-4,30,9,40,API log
45,ChatGPT,0,0,0,Conversation log"""


BURST_8 = """Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
100.5,s1,4,GPT-4,10,20,30,Conversation log
101,,2,GPT-4,7,8,15,API log
130.5,s1,,GPT-4,40,5,45,Conversation log
131,s2,9.5,GPT-4,3,4,7,Conversation log
135,s2,1,GPT-4,9,2,11,Conversation log
190.5,s1,1,GPT-4,50,5,55,Conversation log"""  # noqa: E501


def turn(session_id: str, length: int, output: int, **more: Any) -> dict[str, Any]:
    lengths = {"input_length": length, "output_length": output}
    return {"session_id": session_id, **lengths, **more}


def step(at_s: float, blocks: int, **changes: Any) -> dict[str, Any]:
    record = {
        "t": at_s,
        "type": "n",
        "model": "big",
        "in": 4 * blocks + 1,
        "out": 7,
        "hash_ids": list(range(1, blocks + 1)),
        "api_time": 2.0,
        "think_time": 3.0,
    }
    return changed(record, changes)


SUB_AGENT = {
    "t": 20.5,
    "type": "subagent",
    "agent_id": "agent_001",
    "duration_ms": 5500,
    "tool_tokens": 4,
    "system_tokens": 1,
    "requests": [step(0, 2, model="small", think_time=0.0), step(3, 3, model="small")],
}


def session(*requests: dict[str, Any], **changes: Any) -> dict[str, Any]:
    record = {
        "id": "s",
        "block_size": 4,
        "hash_id_scope": "local",
        "tool_tokens": 5,
        "system_tokens": 2,
        "requests": list(requests),
    }
    return changed(record, changes)


WEKA = session(step(0, 1, think_time=0.0), step(10, 2), SUB_AGENT, step(30, 3, think_time=18.0))
