"""Texts that leave a machine have no paths of it."""

import pytest

from servetwin.app.reports.run_words import run_without_paths, without_paths
from tests.support.figure_frames import load_test


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/ann/trace.jsonl", "trace.jsonl"),
        ("/home/ann/my traces/trace.jsonl", "trace.jsonl"),
        ("read from /home/ann/runs/x.csv: line 3", "read from x.csv: line 3"),
        ("profiles /a/b.json,/c/d.json", "profiles b.json,d.json"),
        ("'/home/ann/short.py:ShortestFirst'", "'short.py:ShortestFirst'"),
        ("file:///home/ann/x.csv and ~/ann/y.csv", "x.csv and y.csv"),
        (r"C:\Users\ann\trace.csv was read", "trace.csv was read"),
        (r"C:\Users\ann\trace.csv", "trace.csv"),
        ("/models/llama-2-7b", "llama-2-7b"),
    ],
)
def test_of_a_file_only_its_name_is_left(text: str, shown: str) -> None:
    assert without_paths(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "3 tokens/s of 4 requests/s",
        "http://10.0.0.1:8000/v1/chat/completions",
        "https://example.org/a/b.json",
        "http://[::1]:80/a/b.json",
        "/v1/chat/completions",
        "/api/generate",
        "meta-llama/Llama-2-7b",
        "</script><img src=x/>",
        "runs/demo",
        "",
    ],
)
def test_what_is_no_file_stays(text: str) -> None:
    assert without_paths(text) == text


def test_a_run_loses_them_in_all_that_describes_it() -> None:
    run = load_test(3)
    run.scenario |= {"profile": ["/home/ann/a.json"], "policies": {"/x/y.json": "/p/q.py:Q"}}
    run.meta["python"] = "/home/ann/.venv/bin/python"
    run.extra["delivered"] |= {"stopped": "/home/ann/list.txt: gone", "lag_p99_s": 0.5}
    shown = run_without_paths(run)
    assert shown.scenario["profile"] == ["a.json"]
    assert shown.scenario["policies"] == {"y.json": "q.py:Q"}
    assert shown.meta["python"] == "python"
    assert shown.extra["delivered"]["stopped"] == "list.txt: gone"
    assert shown.extra["delivered"]["lag_p99_s"] == 0.5
    assert run.scenario["profile"] == ["/home/ann/a.json"], "the run itself is as it was"
