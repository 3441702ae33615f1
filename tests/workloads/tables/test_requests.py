"""Rows become requests with their sessions and the prefixes that they share."""

from servetwin.workloads.reading import read_trace
from servetwin.workloads.request import Request
from tests.support.trace_rows import Write

SESSIONS = """ts,prompt_tokens,output_tokens,session_id,latency_s,status
100,10,4,a,2,ok
103,20,4,a,1.5,ok
101,30,4,b,,ok
110,40,4,b,1,failed
104,50,4,a,1,ok
"""


def by_id(requests: list[Request]) -> dict[str, Request]:
    return {request.request_id: request for request in requests}


def test_a_row_follows_the_one_before_it_in_its_session(write: Write) -> None:
    text = SESSIONS.replace("ts,", "start_s,")
    found = by_id(list(read_trace(write(text), keep_failed=True)))
    links = {
        name[5:]: (r.parent_id and r.parent_id[5:], r.turn, r.delay_s) for name, r in found.items()
    }
    assert links == {
        "1": (None, 0, None),
        "2": ("1", 1, 1.0),
        "5": ("2", 2, 0.0),
        "3": (None, 0, None),
        "4": ("3", 1, None),
    }


def test_prompts_of_one_prefix_share_their_first_blocks(write: Write) -> None:
    text = (
        "start_s,prompt_tokens,output_tokens,prefix_id,prefix_tokens\n"
        "0,100,4,p,48\n1,70,4,p,40\n2,100,4,q,48\n3,20,4,,\n4,30,4,p,48\n"
    )
    ids = [request.prefix_block_ids for request in read_trace(write(text))]
    assert [len(one) for one in ids] == [6, 4, 6, 0, 1]
    assert ids[0][:2] == ids[1][:2]
    assert ids[0][2] != ids[1][2]
    assert ids[4] == ids[0][:1]
    assert not {*ids[2]} & {*ids[0], *ids[1]}
    assert len({*ids[0], *ids[1], *ids[2]}) == 6 + 2 + 6


def test_ids_of_requests_stay_unless_they_are_taken(write: Write) -> None:
    text = "start_s,prompt_tokens,output_tokens,request_id\n0,1,4,x\n1,1,4,y\n2,1,4,x\n"
    assert [r.request_id for r in read_trace(write(text))] == ["x", "y", "some:3"]
