"""The step log: written as it happens, read back as it was, whatever became of the writer."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from servetwin.engine.core.core_process import CoreLoop
from servetwin.engine.core.messages import Stop
from servetwin.engine.core.step_log import StepLogFile, read_arrivals, read_step_log
from servetwin.policies.sequence import Sequence
from servetwin.workloads.errors import EngineError
from tests.support.core_story import FIVE, FakeClock, Script, ScriptedInbox, Story, add, policy
from tests.support.fake_engine import fake_core


def test_step_log_file_reads_back_as_it_was(tmp_path: Path) -> None:
    story = Story(policy(prefix_cache=True), FIVE)
    path = tmp_path / "steps.jsonl"
    log = StepLogFile(path, {"model": "fake", "kv_tokens": 64})
    for seq in story.log.arrivals:
        log.arrival(seq)
    for record in story.log.records:
        log.step(record)
    log.close()
    header, records = read_step_log(path)
    assert header == {"model": "fake", "kv_tokens": 64}
    assert records == story.log.records
    assert [_fields(seq) for seq in read_arrivals(path)] == [
        _fields(seq) for seq in story.log.arrivals
    ]


def test_samples_are_written_where_there_are_several_and_old_rows_have_one(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    log = StepLogFile(path, {})
    for samples in (1, 3):
        log.arrival(Sequence(f"r{samples}", 0.0, 5, 5, samples=samples))
    log.close()
    assert [seq.samples for seq in read_arrivals(path)] == [1, 3]
    assert path.read_text().count("samples") == 1


def _fields(seq: Any) -> tuple[object, ...]:
    return seq.request_id, seq.arrival_s, seq.prompt_tokens, seq.max_tokens, seq.block_keys


def test_step_log_of_a_killed_process_reads_up_to_its_last_whole_line(tmp_path: Path) -> None:
    story = Story(policy(), FIVE)
    path = tmp_path / "steps.jsonl"
    log = StepLogFile(path, {})
    for record in story.log.records:
        log.step(record)
    log.close()
    whole = path.read_bytes()
    for cut in range(1, len(whole.splitlines()[-1]) + 1):
        path.write_bytes(whole[:-cut])
        assert read_step_log(path)[1] == story.log.records[:-1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "{path}:1: not a step log; its first line must be the header"),
        ('{"kind":"step"}\n', "{path}:1: not a step log; its first line must be the header"),
        ("TIMESTAMP,ContextTokens\n", "{path}:1: not a row of a step log"),
        ('{"kind":"header"}\n{"half\n{"kind":"step"}\n', "{path}:2: not a row of a step log"),
        ('{"kind":"header"}\n[]\n', "{path}:2: not a row of a step log"),
        (
            '{"kind":"header"}\n{"kind":"step","step":0}\n',
            "{path}:2: field 'now_s' is missing",
        ),
    ],
)
def test_files_that_are_no_step_logs(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_text(content)
    with pytest.raises(EngineError) as caught:
        read_step_log(path)
    assert str(caught.value) == message.format(path=path)


def test_a_step_log_that_cannot_be_opened(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "steps.jsonl"
    with pytest.raises(EngineError, match="No such file"):
        read_step_log(path)
    with pytest.raises(EngineError, match="No such file"):
        StepLogFile(path, {})


def test_step_log_is_on_disk_whenever_the_core_sleeps(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    clock, lines = FakeClock(), list[int]()

    class CountingInbox(ScriptedInbox):
        def wait(self, seconds: float | None) -> None:
            lines.append(len(path.read_text().splitlines()))
            super().wait(seconds)

    core = fake_core(policy())
    core.clock, core.log = clock, StepLogFile(path, {})
    script: Script = [
        (0.0, add("a", 1, 3)),
        (5.0, add("b", 1, 1)),
        (9.0, Stop()),
    ]
    CoreLoop(core, CountingInbox(clock, script), lambda update: None).run()
    core.log.close()
    assert lines == [1 + 1 + 3, 1 + 1 + 3 + 1 + 1]  # header, arrivals and steps so far


def test_step_log_is_on_disk_once_a_second_under_load(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    log = StepLogFile(path, {})
    story = Story(policy(), [(0.0, add("a", 1, 4))])
    lines = []
    for record, now_s in zip(story.log.records, (0.1, 0.9, 1.2, 1.9), strict=True):
        log.step(replace(record, now_s=now_s))
        lines.append(len(path.read_text().splitlines()))
    log.close()
    assert lines == [1, 1, 4, 4]


def test_a_core_that_is_started_again_goes_on_with_its_log(tmp_path: Path) -> None:
    story, path = Story(policy(), FIVE), tmp_path / "steps.jsonl"
    records, header = story.log.records, {"clock_zero_s": 4.5, "process_id": 1}
    first = StepLogFile(path, header)
    for record in records:
        first.step(record)
    first.close()
    path.write_bytes(path.read_bytes()[:-5])  # killed while it wrote the last step
    again = StepLogFile(path, {**header, "process_id": 2})
    again.failure(0, "a", "ValueError: x")
    again.step(records[0])
    again.close()
    assert read_step_log(path)[0] == header
    numbered = [*records[:-1], replace(records[0], step=len(records) - 1)]
    assert read_step_log(path)[1] == numbered
    text = path.read_text()
    assert '{"kind":"restart","process_id":2}\n{"kind":"failure","step":5,' in text


@pytest.mark.parametrize("before", ['{"kind":"header","clock_zero_s":4.0}\n', "rubbish", "", "\0"])
def test_a_log_of_another_core_is_written_anew(tmp_path: Path, before: str) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_text(before)
    header = {"clock_zero_s": 4.5, "process_id": 1}
    StepLogFile(path, header).close()
    assert read_step_log(path) == (header, [])


def test_drafts_are_written_where_there_are_some_and_old_rows_have_none(tmp_path: Path) -> None:
    records = Story(policy(), FIVE).log.records
    records[1] = replace(records[1], drafts=[("a", 4, 2)])
    path = tmp_path / "steps.jsonl"
    log = StepLogFile(path, {})
    for record in records:
        log.step(record)
    log.close()
    lines = path.read_text().splitlines()[1:]
    assert [place for place, line in enumerate(lines) if '"drafts"' in line] == [1]
    assert read_step_log(path)[1] == records
    assert [record.shape().drafted_chunks for record in records[:3]] == [0, 1, 0]
