"""The command of a picture: what draws it again, without places of this machine."""

import sys

import pytest

from servetwin.app.reports.html.picture_file import command_line


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["replay", "/home/me/t.jsonl", "--plot", "/x/c.svg", "--dark"], "replay t.jsonl"),
        (["replay", "t.jsonl", "--plot=c.svg", "--chart=tpot", "--seed", "3"],
         "replay t.jsonl --seed 3"),
        (["replay", "../t.jsonl", "--scenario=/x/my file.yaml", "--out", "runs/a", "--overwrite"],
         "replay t.jsonl '--scenario=my file.yaml'"),
        (["compare", "runs/a", "runs/b", "--json", "--plot"], "compare runs/a runs/b"),
        (["replay", "compare", "static", "vllm-v1", "t.jsonl"],
         "replay compare static vllm-v1 t.jsonl"),
    ],
)  # fmt: skip
def test_what_only_says_where_to_write_is_left_out(given: list[str], kept: str) -> None:
    assert command_line(given) == f"servetwin {kept}"


def test_it_is_that_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/servetwin", "replay", "t.jsonl"])
    assert command_line() == "servetwin replay t.jsonl"
