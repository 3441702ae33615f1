"""Tables as people have them: read alike in every form, or refused with line, column and remedy."""

import gzip
import json

import pytest

from servetwin.workloads.errors import TraceError
from servetwin.workloads.reading import read_trace
from servetwin.workloads.tables.mapping import parse_mapping
from servetwin.workloads.trace import Trace
from tests.support.trace_rows import Write

STAMPS = ("09:00:00.000", "09:00:00.310", "09:00:01.500")
ROWS = "".join(f"2026-11-20T{at}Z,{n},{n + 1}\n" for at, n in zip(STAMPS, (4, 50, 6), strict=True))
HEADER = "created_at,input_tokens,output_tokens\n"
EXPECTED = [(0.0, 4, 5), (0.31, 50, 51), (1.5, 6, 7)]


def asked(trace: Trace) -> list[tuple[float, int, int]]:
    return [(round(r.arrival_s, 9), r.prompt_tokens, r.output_tokens) for r in trace]


FORMS = {
    "plain": HEADER + ROWS,
    "a byte order mark": "\ufeff" + HEADER + ROWS,
    "CRLF": (HEADER + ROWS).replace("\n", "\r\n"),
    "semicolons": (HEADER + ROWS).replace(",", ";"),
    "decimal commas": "start (s);Input tokens;Output tokens\n12,5;4;5\n12,81;50;51\n14,0;6;7\n",
    "floats of pandas": HEADER
    + "1795165200.0,4.0,5.0\n1795165200.31,50.0,51.0\n1795165201.5,6.0,7.0\n",
    "milliseconds": "arrival_ms,prompt_len,output_len\n7000,4,5\n7310,50,51\n8500,6,7\n",
    "milliseconds since 1970": HEADER
    + "1795165200000,4,5\n1795165200310,50,51\n1795165201500,6,7\n",
    "out of order": HEADER + "".join(reversed(ROWS.splitlines(keepends=True))),
    "day first": HEADER + "20/11/2026 09:00:00.000,4,5\n20/11/2026 09:00:00.310,50,51\n"
    "20/11/2026 09:00:01.500,6,7\n",
    "zones": HEADER + "2026-11-20T09:00:00Z,4,5\n2026-11-20T10:00:00.310+01:00,50,51\n"
    "2026-11-20T03:30:01.500-05:30,6,7\n",
    "JSON Lines": '{"ts": 1795165200.0, "usage": {"prompt_tokens": 4, "completion_tokens": 5}}\n'
    '{"ts": 1795165200.31, "usage": {"prompt_tokens": 50, "completion_tokens": 51}}\n'
    '{"ts": 1795165201.5, "usage": {"prompt_tokens": 6, "completion_tokens": 7}}\n',
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_has_the_same_requests(name: str, write: Write) -> None:
    assert asked(read_trace(write(FORMS[name]))) == EXPECTED
    packed = write("")
    packed.write_bytes(gzip.compress(FORMS[name].encode()))
    assert asked(read_trace(packed)) == EXPECTED


BAD = [
    (
        HEADER + "2026-11-20T09:00:00Z,4,5\nx,4,5\n2026-11-20T09:00:00Z,4,5\n",
        "3: field 'created_at': no time: wants a number, or one such as 2026-11-20 09:00:00.310 "
        '("x")',
    ),
    (
        HEADER + ROWS + "2026-11-20T09:00:00Z,many,5\n",
        "5: field 'input_tokens': not an integer (\"many\")",
    ),
    (HEADER + ROWS + "2026-11-20T09:00:00Z,,5\n", "5: field 'input_tokens': missing (\"\")"),
    (
        HEADER + ROWS + ",4,5\n",
        "5: field 'created_at': missing: when did this request arrive? (\"\")",
    ),
    (
        HEADER + ROWS + "2026-11-20T09:00:00Z,0,5\n",
        "5: field 'input_tokens': must be at least 1 (0)",
    ),
    (
        HEADER + ROWS + "2026-11-20T09:00:00Z,4\n",
        "5: field 'output_tokens': the row has 2 cells where the header has 3 "
        '("2026-11-20T09:00:00Z,4")',
    ),
    (
        HEADER + ROWS + "2026-11-20T09:00:09,4,5\n",
        "5: field 'created_at': no time zone where the rows before have a time zone "
        '("2026-11-20T09:00:09")',
    ),
    (
        "ttft_ms,ts,in,out\n80,2026-11-20 09:00:00,4,5\n-80,2026-11-20 09:00:01,4,5\n",
        "3: field 'ttft_ms': a negative duration (\"-80\")",
    ),
    (
        "end_time,ts,in,out\n2026-11-20 08:59:59,2026-11-20 09:00:00,4,5\n",
        "2: field 'end_time': 1 s before the arrival (\"2026-11-20 08:59:59\")",
    ),
    (
        "ttft_s,latency_s,ts,in,out\n1,2,2026-11-20 09:00:00,4,5\n1,.9,2026-11-20 09:00:00,4,5\n",
        "3: field 'ttft_s': the first token comes after the last one (1.0)",
    ),
    (
        "status,ts,in,out\nok,2026-11-20 09:00:00,4,5\n"
        + "ok,2026-11-20 09:00:00,4,5\n" * 1000
        + "huh,2026-11-20 09:00:00,4,5\n",
        "1003: field 'status': unclear whether that is a failure (\"huh\")",
    ),
    (
        HEADER + "x\ny\n",
        "2: field 'input_tokens': the row has 1 cells where the header has 3 (\"x\")",
    ),
    (HEADER, "1: no requests"),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_a_bad_row_is_one_line(text: str, message: str, write: Write) -> None:
    path = write(text)
    with pytest.raises(TraceError) as error:
        read_trace(path)
    assert str(error.value) == f"{path}:{message}"


def test_bad_rows_up_to_a_limit_are_skipped(write: Write) -> None:
    path = write(HEADER + ROWS + "2026-11-20T09:00:00Z,many,5\nx\n")
    assert asked(read_trace(path, max_bad_rows=2)) == EXPECTED


DOUBTS = [
    (
        "time,prompt,completion\n0.0,4,5\n1.5,6,7\n",
        "time: an arrival or a duration, in s or ms?",
        "arrival_s=time,prompt_tokens=prompt,output_tokens=completion",
    ),
    (
        "ts,in,out\n0.0,4,5\n1.5,6,7\n",
        "ts: in s or ms?",
        "arrival_s=ts,prompt_tokens=in,output_tokens=out",
    ),
    (
        "ts,in,out\n01/02/2026 09:00,4,5\n02/02/2026 09:00,6,7\n",
        "ts: day or month first, as in '01/02/2026 09:00'?",
        "arrival_dmy=ts,prompt_tokens=in,output_tokens=out",
    ),
    (
        "ts,in,out\n13/02/2026 09:00,4,5\n02/13/2026 09:00,6,7\n",
        "ts: a date in no order that all have",
        "arrival_dmy=ts,prompt_tokens=in,output_tokens=out",
    ),
    (
        "x,y,z\n2026-11-20 09:00:00,4,5\n2026-11-20 09:00:00,6,5\n",
        "no column is clearly the arrival",
        "arrival=x,prompt_tokens=y,output_tokens=z",
    ),
    (
        "start_time,created_at,in,out\n2026-11-20 09:00:00,2026-11-20 08:59:00,4,5\n",
        "when did a request arrive: start_time or created_at?",
        "arrival=start_time,prompt_tokens=in,",
    ),
    (
        "ts,prompt_tokens,input_tokens,out\n2026-11-20 09:00:00,4,5,5\n",
        "which is the prompt: prompt_tokens or input_tokens?",
        "arrival=ts,prompt_tokens=prompt_tokens",
    ),
    (
        "ts,in,out,status\n2026-11-20 09:00:00,4,5,7\n",
        "status: is '7' a failure?",
        "arrival=ts,prompt_tokens=in,output_tokens=out",
    ),
    *(
        (
            "ts,in,out,status,finish_reason\n2026-11-20 09:00:00,4,5,ok,stop\n"
            f"2026-11-20 09:00:00,4,5,{status},{reason}\n",
            "which says what failed: ",
            f"arrival=ts,prompt_tokens=in,output_tokens=out,status={doubted}",
        )
        for status, reason, doubted in (
            ("client_gone", "stop", "status"),
            ("ok", "abort", "finish_reason"),
        )
    ),
    ("ts,in,out\n2026-11-20 09:00:00,a,b\n", "no column is clearly the prompt", "arrival_s=COLUMN"),
    ("ts_ms,in,out\n1795165200,4,5\n", "ts_ms: 1795165200 are no ms since 1970", "arrival_s=ts_ms"),
    (
        "ts,index,out\n2026-11-20 09:00:00,1,5\n2026-11-20 09:00:00,2,9\n2026-11-20 09:00:00,3,9\n",
        "no column is clearly the prompt",
        "arrival_s=COLUMN",
    ),
]


@pytest.mark.parametrize(("text", "question", "mapping"), DOUBTS)
def test_a_doubt_names_the_columns_what_is_needed_and_the_mapping(
    text: str, question: str, mapping: str, write: Write
) -> None:
    path = write(text)
    with pytest.raises(TraceError) as error:
        read_trace(path)
    said = str(error.value)
    assert said.startswith(f"{path}:1: {question}")
    assert f"the columns are {', '.join(text.splitlines()[0].split(','))}" in said
    assert "needed are the arrival, the tokens or the text of the prompt" in said
    assert f"give --map {mapping}" in said
    assert "\n" not in said


def test_a_name_that_says_tokens_is_believed(write: Write) -> None:
    rows = "".join(f"{1_795_165_200 + n},{n + 198},{n + 1}\n" for n in range(5))
    assert len(read_trace(write(HEADER + rows))) == 5
    with pytest.raises(TraceError, match="no column is clearly the answer"):
        read_trace(write(HEADER.replace("output_tokens", "out") + rows))


def test_the_mapping_of_the_message_does(write: Write) -> None:
    path = write(DOUBTS[0][0])
    found = read_trace(path, columns=parse_mapping(DOUBTS[0][2]))
    assert asked(found) == [(0.0, 4, 5), (1.5, 6, 7)]
    assert found.notes[0] == f"columns taken: {DOUBTS[0][2]}"


def test_a_mapping_of_some_leaves_the_rest_to_be_recognised(write: Write) -> None:
    path = write(DOUBTS[0][0])
    assert asked(read_trace(path, columns={"arrival_ms": "time"}))[1] == (0.0015, 6, 7)
    with pytest.raises(TraceError, match=r"the arrival missing; arrival_s=time,.* would do"):
        read_trace(path, columns={"prompt_tokens": "prompt"})


def test_a_whole_mapping_takes_nothing_else(write: Write) -> None:
    path = write("ts,in,out,status,session_id\n2026-11-20 09:00:00,4,5,failed,a\n")
    (request,) = read_trace(
        path, columns=parse_mapping("arrival=ts,prompt_tokens=in,output_tokens=out")
    )
    assert (request.status, request.session_id) == ("ok", None)


@pytest.mark.parametrize(
    ("columns", "options", "says"),
    [
        ({"arrival": "tz"}, {}, ":1: --map: arrival: no column 'tz'; it has ts, in, out"),
        ({"arrival": "ts"}, {"format": "azure"}, "--map: is for the columns of a table, not with"),
    ],
)
def test_a_mapping_that_cannot_be(
    columns: dict[str, str], options: dict[str, str], says: str, write: Write
) -> None:
    path = write("ts,in,out\n2026-11-20 09:00:00,4,5\n")
    with pytest.raises(TraceError) as error:
        read_trace(path, columns=columns, **options)  # type: ignore[arg-type]  # one of several kinds
    assert says in str(error.value)


def test_failed_requests_are_counted_by_their_reason(write: Write) -> None:
    text = "ts,in,out,status\n" + "".join(
        f"2026-11-20 09:00:0{n},{prompt},{out},{status}\n"
        for n, (prompt, out, status) in enumerate(
            [(4, 5, 200), (4, "", 429), ("", "", 500), (4, 0, 200), (4, 0, 429), (6, 7, 201)]
        )
    )
    found = read_trace(write(text))
    assert [r.prompt_tokens for r in found] == [4, 6]
    assert found.notes[1:] == (
        "failed: 429 (2), 500 (1), no output (1); not simulated, though the server had them",
        "4 failed rows left out",
    )
    assert [r.status for r in read_trace(write(text), keep_failed=True)] == [
        "ok",
        "failed",
        "failed",
        "failed",
        "failed",
        "ok",
    ]


@pytest.mark.parametrize(
    ("status", "reason"), [("ok", "eos_token"), ("failed", "abort"), ("failed", "stop"), ("ok", "")]
)
def test_columns_of_states_that_agree_are_no_doubt(status: str, reason: str, write: Write) -> None:
    text = "ts,in,out,status,finish_reason\n2026-11-20 09:00:00,4,5,ok,stop\n"
    trace = read_trace(write(f"{text}2026-11-20 09:00:00,4,5,{status},{reason}\n"))
    assert len(trace) == 1 + (status == "ok")
    assert "status=status; left: finish_reason" in trace.notes[0]


def test_an_error_fails_whatever_the_status_says(write: Write) -> None:
    text = "ts,in,out,error\n2026-11-20 09:00:00,4,5,\n2026-11-20 09:00:00,4,5,reset by peer\n"
    assert len(read_trace(write(text))) == 1


def test_measured_times_offer_a_calibration(write: Write) -> None:
    text = "ts,in,out,ttft_ms,latency\n2026-11-20 09:00:00,4,5,80,2\n"
    notes = read_trace(write(text)).notes
    assert notes[0].endswith("ttft_ms=ttft_ms; left: latency")
    assert notes[1] == "left, in doubt: e2e_s=latency or e2e_ms=latency (--map)"
    assert notes[2].startswith("1 request with measured times: servetwin calibrate --recorded ")


def test_texts_are_estimated_and_say_so(write: Write) -> None:
    text = 'timestamp,prompt,response\n2026-11-20 09:00:00,"Hello, you",12345678\n'
    text += '2026-11-20 09:00:00,"Hello, you",fine thanks\n' * 2
    (first, second, _) = read_trace(write(text))
    assert (first.prompt, first.prompt_tokens, first.output_tokens) == ("Hello, you", 3, 2)
    assert (second.answer, second.output_tokens) == ("fine thanks", 3)
    notes = read_trace(write(text)).notes
    assert any("lengths estimated at 4 bytes a token; --tokenizer counts them" in n for n in notes)


def test_the_first_rows_are_enough_where_few_are_wanted(write: Write) -> None:
    from servetwin.workloads.reading import read_first

    rows = "".join(f"{1_795_165_200 + n},{n % 7 + 1},5\n" for n in range(5_000))
    found = read_first(write(HEADER + rows + "not read\n"), 100)
    assert found.stopped
    assert len(found) == 1_000


@pytest.mark.parametrize("name", ["request_id", "session_id", "model", "id"])
@pytest.mark.parametrize("tokens", [("input_tokens", "output_tokens"), ("prompt_tokens", "out")])
def test_a_log_of_stamps_and_tokens_is_no_mooncake_trace(
    name: str, tokens: tuple[str, str], write: Write
) -> None:
    """Whose stamps are milliseconds, where those of a log are what they say."""
    rows = ({name: f"x{n}", "timestamp": 1_770_000_000.5 + 10 * n} for n in range(2))
    text = "\n".join(json.dumps({**row, tokens[0]: 5, tokens[1]: 4}) for row in rows)
    assert asked(read_trace(write(text))) == [(0.0, 5, 4), (10.0, 5, 4)]
