"""Right samples of every format of traces and of recorded runs, by the name of what reads it."""

import json
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support import recorded_files as files
from tests.support.trace_rows import (
    AZURE,
    BURST_6,
    BURST_8,
    SUB_AGENT,
    VIDUR,
    WEKA,
    chat,
    lines,
    round_,
    session,
    step,
    turn,
)

_CONVERSATION = {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}
_MESSAGES = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]
_PROMPTS: list[dict[str, Any]] = [
    {"prompt": "one two", "max_tokens": 5},
    {"prompt": "three", "answer": "four"},
]

TRACES: Mapping[str, tuple[str, ...]] = {
    "sharegpt": (json.dumps([_CONVERSATION, _CONVERSATION]), lines(_CONVERSATION)),
    "chat": (lines({"messages": _MESSAGES}), json.dumps([{"messages": _MESSAGES[:1]}])),
    "prompts": (lines(*_PROMPTS), 'prompt,max_tokens\n"a, b",3\nc,\n', 'text,answer\na,"b\nc"\n'),
    "azure": (
        AZURE,
        "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1,3,4",
    ),
    "burstgpt": (BURST_6, BURST_8),
    "vidur": (VIDUR, "num_prefill_tokens,num_decode_tokens,num_total_tokens\n3,4,7\n"),
    "weka": (json.dumps(WEKA), json.dumps(WEKA, indent=1)),
    "tracelab": (lines(round_(0), round_(1, ("user_message", 1.0), ("tool_result", 2.5))),),
    "bailian": (lines(chat(1, -1, [1, 2]), chat(2, 1, [1, 2, 3])),),
    "llmservingsim": (
        lines(
            {"input_toks": 3, "output_toks": 2, "arrival_time_ns": 5, "input_tok_ids": [1, 2, 3]},
            {"session_id": "s", "arrival_time_ns": 7, "sub_requests": [
                {"input_toks": 3, "output_toks": 2, "tool_duration_ns": 9},
                {"input_toks": 6, "output_toks": 1, "output_tok_ids": [4]},
            ]},
        ),
    ),
    "mooncake": (
        '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}\n',
        lines(turn("a", 600, 5, timestamp=3, hash_ids=[0]), turn("a", 9, 5, delay=20)),
    ),
    "table": (
        "created_at;prompt tokens;completion tokens;ttft_ms;status\n"
        "2026-11-20 09:00:00,5;4;5;8,5;200\n",
        '{"ts": 1795165200.5, "usage": {"prompt_tokens": 4, "completion_tokens": 5}, "n": "a"}\n',
    ),
    "native": (
        lines(
            {"schema": "servetwin-trace-1", "source": "s", "block_tokens": 4, "clock_s": 1.0},
            {"request_id": "a", "arrival_s": 0.5, "prompt_tokens": 9, "output_tokens": 1},
            {"arrival_s": 1, "prompt_tokens": 9, "output_tokens": 1, "parent_id": "a",
             "prefix_block_ids": [1, 2], "modal": {"images": 1}, "prompt": "p"},
        ),
    ),
}  # fmt: skip
"""By the names of ``workloads.readers.registry``."""

SESSIONS = (json.dumps(session(step(0, 1), SUB_AGENT, id="t")),)
"""Of a folder of sessions, beside another file."""

RECORDED: Mapping[str, tuple[str, ...]] = {
    "bench_serving": (files.vllm_bench(), files.vllm_bench(backend="sglang-oai")),
    "aiperf": (files.aiperf(),),
    "guidellm": (files.guidellm(),),
    "inference_perf": (files.inference_perf(), files.inference_perf(nested=True)),
    "tunnel": (files.tunnel(),),
    "engine_stamps": (files.engine_stamps(), files.engine_stamps(theirs=True)),
    "otel_spans": (files.otel_spans(),),
    "mapped": (files.csv(),),
}
"""By the formats of ``loadtest.recorded.formats``."""


def parquet() -> bytes:
    """Return a file of prompts."""
    file = BytesIO()
    pq.write_table(_table(), file)
    return file.getvalue()


def arrow() -> bytes:
    """Return a stream of prompts, as ``save_to_disk`` writes it."""
    file = BytesIO()
    with pa.ipc.new_stream(file, _table().schema) as writer:
        writer.write_table(_table())
    return file.getvalue()


def _table() -> Any:
    return pa.Table.from_pylist(_PROMPTS)
