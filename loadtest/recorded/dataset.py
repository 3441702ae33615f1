"""The prompts of a recorded run whose stamps and workload are in separate files.

LLMServingSim's bench writes ``requests.jsonl`` without prompts, and beside it ``meta.json`` with
the path of the workload, in which request ``bench-7`` has the place 7, counted from 0.
"""

import json
import re
from dataclasses import replace
from pathlib import Path

from servetwin.loadtest.recorded.recording import RecordedRequest, Recording
from servetwin.workloads.files import open_text
from servetwin.workloads.reading import read_trace
from servetwin.workloads.request import Request
from servetwin.workloads.rows import RowError


def with_dataset(path: Path, recording: Recording) -> Recording:
    """Return the recording of a file with the prefixes of its prompts, if a workload names them.

    A note says where a workload is missing. Raises ``RowError`` where it is another one.
    """
    places = [re.fullmatch(r"bench-(\d{1,9})", one.request_id) for one in recording.requests]
    name = _dataset_name(path.with_name("meta.json"))
    if name is None or None in places:
        return recording
    near = [path.with_name(Path(name).name), *(folder / name for folder in path.parents)]
    dataset = next((one for one in near if one.is_file()), None)
    if dataset is None:
        note = f"no {name} beside the file or above it: prompts are taken to share no prefix"
        return replace(recording, notes=(*recording.notes, note))
    prompts = sorted(read_trace(dataset), key=lambda request: request.source_line or 0)
    joined = [
        _joined(one, dataset, prompts, int(place[1]))
        for one, place in zip(recording.requests, places, strict=True)
        if place
    ]
    return replace(recording, requests=joined, notes=(*recording.notes, f"prompts of {name}"))


def _dataset_name(meta: Path) -> str | None:
    if not meta.is_file():
        return None
    with open_text(meta) as file:
        text = file.whole()
    try:
        name = json.loads(text).get("dataset_path")
    except (ValueError, AttributeError, RecursionError):
        return None
    return name if isinstance(name, str) and name else None


def _joined(
    one: RecordedRequest, dataset: Path, prompts: list[Request], place: int
) -> RecordedRequest:
    if one.prefix_block_ids or one.error is not None:
        return one
    prompt = prompts[place] if place < len(prompts) else None
    if prompt is None or prompt.prompt_tokens != one.prompt_tokens:
        has = f"{prompt.prompt_tokens} tokens" if prompt else f"only {len(prompts)} requests"
        raise RowError(
            one.request_id, f"{one.prompt_tokens} prompt tokens, but {dataset} has {has}", place
        )
    ids = prompt.prefix_block_ids
    return replace(one, prefix_block_ids=ids, block_tokens=prompt.block_tokens if ids else None)
