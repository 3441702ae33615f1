"""An anonymous trace says which blocks and names are equal, as the trace did, and nothing more."""

import json
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from servetwin.workloads.anonymous import NOTE, Anonymiser
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.command import servetwin

PLANTED = "Zebra-Quartz_7731"


@given(st.lists(st.lists(st.integers(0, 9), max_size=6), min_size=1, max_size=8))
def test_ids_are_equal_where_they_were(chains: list[list[int]]) -> None:
    requests = tuple(
        Request(str(n), n, 100, 1, prefix_block_ids=tuple(ids), block_tokens=16)
        for n, ids in enumerate(chains)
    )
    hidden = Anonymiser().trace(Trace(requests, "source"))
    before = [block for request in requests for block in request.prefix_block_ids]
    after = [block for request in hidden for block in request.prefix_block_ids]
    pairs = {*zip(before, after, strict=True)}
    assert len(pairs) == len({*before}) == len({*after})


@given(st.text(max_size=300), st.text(max_size=300))
def test_prompts_share_the_blocks_of_their_common_start(one: str, two: str) -> None:
    anonymiser = Anonymiser()
    ids = [anonymiser.block_ids([text], 10_000) for text in (one, two)]
    same = 0
    first, second = (json.dumps(text).encode() + b"\n" for text in (one, two))
    while (end := 64 * (same + 1)) <= min(len(first), len(second)) and first[:end] == second[:end]:
        same += 1
    assert ids[0][:same] == ids[1][:same]
    assert not {*ids[0][same:]} & {*ids[1][same:]}


def test_names_texts_and_headers_go_and_graphs_stay() -> None:
    one = Request("a", 0, 9, 1, session_id="s", prompt=PLANTED, answer=PLANTED, model=PLANTED)
    two = replace(one, request_id="b", arrival_s=1.0, parent_ids=("a",), tenant=PLANTED)
    two = replace(two, kind=PLANTED, modal={PLANTED: 1, "images": 2}, headers={PLANTED: PLANTED})
    hidden = Anonymiser().trace(Trace((one, two), PLANTED, notes=(PLANTED,)))
    assert PLANTED not in repr(hidden) + repr([request.headers for request in hidden])
    first, second = hidden
    assert second.parent_ids == (first.request_id,)
    assert first.session_id == second.session_id != "s"
    assert second.modal == {"images": 2}
    assert (second.arrival_s, second.prompt_tokens, second.output_tokens) == (1.0, 9, 1)


def test_the_command_writes_a_log_without_its_texts(tmp_path: Path) -> None:
    rows = [
        {"arrival_s": n, "prompt": PLANTED * 20, "prompt_tokens": 85, "output_tokens": 3}
        for n in range(3)
    ]
    log, out = tmp_path / "log.jsonl", tmp_path / "out.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = servetwin("workload", "anonymise", log, out)
    assert NOTE in done.out
    header, *written = map(json.loads, out.read_text().splitlines())
    assert PLANTED not in out.read_text()
    assert header["source"] == "anonymous"
    assert len({tuple(row["prefix_block_ids"]) for row in written}) == 1
