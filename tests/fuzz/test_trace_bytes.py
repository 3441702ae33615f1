"""The fuzzer of traces and recorded runs: a sample of every format, a fixed number of cases."""

from pathlib import Path

import pytest

from servetwin.loadtest.recorded.formats import FORMATS
from servetwin.loadtest.recorded.recording import records_of
from servetwin.workloads.files import open_text
from servetwin.workloads.readers.registry import READERS
from servetwin.workloads.rows import BadRows, Rows
from tests.fuzz import trace_bytes
from tests.fuzz.campaign import Budget, run
from tests.fuzz.trace_samples import RECORDED, TRACES


def test_traces_are_read_or_refused() -> None:
    run("trace_bytes", trace_bytes.draw, trace_bytes.check, seed=15, budget=Budget(cases=400))


@pytest.mark.parametrize("name", READERS)
def test_every_reader_has_samples_that_it_recognises_first(name: str, tmp_path: Path) -> None:
    for sample in TRACES[name]:
        path = tmp_path / "t"
        path.write_text(sample)
        with open_text(path) as lines:
            _, row = Rows(path, lines, BadRows(0)).peek()
        assert next(known for known in READERS if READERS.build(known).recognises(row)) == name


def test_every_format_of_recorded_runs_has_samples() -> None:
    assert {*RECORDED} == {*FORMATS, "mapped"}
    for name in FORMATS:
        for sample in RECORDED[name]:
            first = records_of(sample)[0].fields
            assert next(one for one in FORMATS if FORMATS[one].recognises(first)) == name


@pytest.mark.parametrize("name", trace_bytes.KINDS)
def test_every_sample_is_right(name: str) -> None:
    kind = trace_bytes.KINDS[name]
    assert [kind.read(sample) for sample in kind.samples]
