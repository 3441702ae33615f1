"""``servetwin capacity`` with what it varies; presets and the self-test."""

import json

import pytest
from typer.testing import CliRunner, Result

import servetwin.app.tasks.selftest as command
from servetwin.app.cli import app
from servetwin.policies.presets import PRESETS
from tests.support.command import SERVER, refused, servetwin, with_server
from tests.support.paths import SAMPLE

SLO = ("--slo", "ttft=500ms", "--attainment", 0.9, "--rate", 12, "--replications", 2)


def test_replicas_alone_asks_how_many_and_the_answer_comes_first() -> None:
    done = servetwin("capacity", SAMPLE, *SERVER, *SLO, "--replicas", "--price", "0.5")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0] == "profile base-cpu (measured here: base on AMD EPYC)"
    assert lines[1].startswith("3 replicas hold p90 TTFT below 500 ms for the 240 requests")
    assert "2 miss it: 510 ms" in " ".join(lines[:4])
    assert "1.50" in done.out
    assert max(map(len, lines)) <= 100


def test_json_has_every_candidate_its_counts_and_its_cost() -> None:
    done = servetwin(
        "capacity", SAMPLE, *SERVER, *SLO, "--vary", "batching=static,continuous", "--replicas",
        "--json",
    )  # fmt: skip
    found = json.loads(done.out)
    assert [one["label"] for one in found["candidates"]] == [
        "batching=static", "batching=continuous",
    ]  # fmt: skip
    assert found["best"] in ("batching=static", "batching=continuous")
    static, continuous = found["candidates"]
    assert continuous["count"] <= static["count"]
    assert [p["holds"] for p in continuous["points"]] == [False, True, True]
    assert continuous["cost_per_h"] is None


def test_users_think_and_have_a_number_of_their_own() -> None:
    few = servetwin("capacity", SAMPLE, *SERVER, *SLO, "--users", "--limit", 100)
    more = servetwin(
        "capacity", SAMPLE, *SERVER, *SLO, "--users", "--limit", 100,
        "--think-time", "exponential:mean=5",
    )  # fmt: skip
    counts = [int(done.out.splitlines()[1].split()[0]) for done in (few, more)]
    assert " users at a time are served with p90 TTFT below 500 ms by 1 x " in few.out
    assert counts[0] < counts[1]


def test_a_candidate_that_cannot_be_is_a_row_with_its_reason() -> None:
    done = servetwin(
        "capacity", SAMPLE, *SLO, "--replicas", "--model", "llama-3-70b",
        "--vary", "gpu=h100,b200",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "gpu=b200: 1 replica holds" in " ".join(done.out.split())
    assert "gpu=h100" in done.out
    assert "fit" in done.out


def test_a_rate_has_candidates_too() -> None:
    done = servetwin(
        "capacity", SAMPLE, *SERVER, "--slo", "ttft=500ms", "--attainment", 0.9,
        "--replications", 0, "--vary", "max_seqs=2,16",
    )  # fmt: skip
    assert done.out.startswith("max_seqs=16: ")
    assert " requests/s are served with p90 TTFT below 500 ms" in done.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--replicas", "none"], "--replicas: 'none' is no number from 1 on"),
        (["--replicas=0"], "--replicas: '0' is no number from 1 on"),
        (["--replicas", "--users"], "--users: asks for users; give --replicas N beside it"),
        (["--think-time", "2"], "--think-time: is of users"),
        (["--users", "--think-time", "long"], "long"),
        (["--most", "4"], "--most: is of replicas or users"),
        (["--replicas", "--price", "cheap"], "--price: 'cheap' is no price"),
        (["--replicas", "--price", "h100=3"], "--price: no candidate runs on 'h100'"),
        (["--replicas", "--vary", "max_seq=4"], "max_seqs"),
        (["--replicas", "--attainment", "0.999"], "cannot tell what 99.9 % of them keep"),
        (["--replicas", "--vary", "gpu=h100"], "--model"),
    ],
)
def test_bad_input_is_one_line(options: list[str], message: str) -> None:
    given = ["--slo", "ttft=500ms", "--replications", "0", *options]
    assert message in refused("capacity", SAMPLE, *with_server(*given))


def test_every_preset_is_listed_with_all_that_it_sets() -> None:
    printed = servetwin("list", "presets").out
    assert [line for line in printed.splitlines() if not line.startswith(" ")] == list(PRESETS)
    assert max(map(len, printed.splitlines())) <= 100
    settings = printed.split()
    for preset in PRESETS.values():
        for key, value in {**preset.policies, **preset.cluster}.items():
            assert f"{key}={value}" in settings


def test_a_copy_and_eager_kernels_are_said() -> None:
    assert "same figures as vllm-v0" in servetwin("list", "presets", "openllm").out
    assert "same figures" not in servetwin("list", "presets", "vllm-v0").out
    assert "kernels of eager PyTorch" in servetwin("list", "presets", "hf-transformers").out
    assert "kernels" not in servetwin("list", "presets", "sarathi").out


def test_presets_as_numbers() -> None:
    found = json.loads(servetwin("list", "presets", "paddle", "distserve", "--json").out)
    assert list(found) == ["paddle", "distserve"]
    assert found["distserve"]["cluster"] == PRESETS["distserve"].cluster
    assert found["paddle"]["copy_of"] is None


def test_a_preset_that_does_not_exist_is_named_with_the_nearest() -> None:
    assert "unknown preset 'opnllm'; did you mean 'openllm'?" in refused(
        "list", "presets", "opnllm"
    )


def selftest(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["selftest", *arguments])


def test_a_table_of_exact_and_measured_figures() -> None:
    done = selftest()
    assert done.exit_code == 0
    head, *rows = done.stdout.splitlines()
    assert head.split() == ["exact", "measured", "+-", "99.9", "%"]
    assert [row[:28].strip() for row in rows] == [
        "M/D/1 mean wait, s",
        "M/M/1 mean wait, s",
        "Little's law, relative gap",
    ]
    assert [row[28:40].strip() for row in rows] == ["0.5", "1", "0"]
    assert all(row.endswith("holds") for row in rows)


def test_json_has_every_figure_in_a_narrow_interval() -> None:
    summary = json.loads(selftest("--json").stdout)
    assert (summary["holds"], summary["confidence"]) == (True, 0.999)
    deterministic, exponential, little = summary["checks"]
    assert deterministic["half_width"] < 0.1
    assert exponential["half_width"] < 0.3
    assert little["half_width"] == 1e-9


def test_a_figure_that_fails_is_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        command, "closed_form_checks", lambda: [command.ClosedFormCheck("wait", 1.0, 1.2, 0.1)]
    )
    done = selftest()
    assert done.exit_code == 1
    assert "FAILED" in done.stdout
    assert "servetwin: 1 of 1 checks failed" in done.stderr
