"""Links by name and by measured curves, and what is wrong in a file of them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.sim.catalogue.hardware import Link
from servetwin.sim.catalogue.links import MeasuredLink, find_link, known_machines
from servetwin.workloads.errors import ShapeError

NCCL = """\
# nThread 1 nGpus 2 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20
# Collective test starting: all_reduce_perf
# Using devices
#  Rank  0 Group  0 Pid  15784 on  node1 device  0 [0x01] NVIDIA L40S
#  Rank  1 Group  0 Pid  15784 on  node1 device  1 [0x02] NVIDIA L40S
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           8             2     float     sum      -1    14.54    0.00    0.00      0    15.94    0.00    0.00      0
[1,0]<stdout>:     1048576        262144     float     sum      -1    80.00   13.11   13.11      0    80.7    9.92   17.37      0
   134217728      33554432     float     sum      -1   6400.0   20.97   20.97    N/A    819.6  163.76  163.76    N/A
# Avg bus bandwidth    : 12.0
"""  # noqa: E501


def saved(tmp_path: Path, text: str, name: str = "link.txt") -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def test_the_output_of_nccl_tests(tmp_path: Path) -> None:
    link = find_link(saved(tmp_path, NCCL))
    assert link.all_reduce_s(1048576, 2) == pytest.approx(80e-6)
    assert link.all_reduce_s(1, 2) == pytest.approx(14.54e-6)
    assert link.all_reduce_s(2 * 134217728, 2) == pytest.approx(2 * 6400e-6)
    # four ranks cross the link 2 x 3/4 times a byte where two cross it once
    assert link.all_reduce_s(1048576, 4) == pytest.approx(1.5 * 80e-6)
    assert link.bytes_per_s == pytest.approx(20.97e9, rel=1e-3)
    # what was not measured follows from latency and bandwidth
    assert link.all_gather_s(1e9, 2) == pytest.approx(Link.all_gather_s(link, 1e9, 2))


@given(st.floats(1, 1e10), st.floats(1, 1e10), st.integers(2, 16))
def test_more_bytes_never_take_less(
    tmp_path_factory: pytest.TempPathFactory, a: float, b: float, ranks: int
) -> None:
    link = MeasuredLink.of("l", {("all_reduce", 2): ((8.0, 1e-5), (1e6, 8e-5), (1e8, 6e-3))})
    small, large = sorted((a, b))
    assert link.all_reduce_s(small, ranks) <= link.all_reduce_s(large, ranks) * (1 + 1e-12)
    assert link.slowed(2).all_reduce_s(large, ranks) <= 2 * link.all_reduce_s(large, ranks) + 1e-12


def test_half_the_bandwidth_doubles_long_messages_alone() -> None:
    link = MeasuredLink.of("l", {("all_reduce", 2): ((8.0, 1e-5), (1e8, 6e-3))})
    assert link.slowed(2).all_reduce_s(1e8, 2) == pytest.approx(12e-3)
    assert Link(1e-6, 1e9).slowed(2).send_s(1e9) == pytest.approx(2 + 1e-6)


def test_a_table_of_kernels_has_elements(tmp_path: Path) -> None:
    rows = "nccl_dtype,num_gpus,message_size,op_name,latency\nhalf,8,268435456,all_gather,1.4\n"
    link = find_link(saved(tmp_path, rows, "a.csv"))
    assert link.all_gather_s(2 * 268435456, 8) == pytest.approx(1.4e-3)


def test_elements_read_as_bytes_are_above_the_peak(tmp_path: Path) -> None:
    """A table of ours whose sizes are twice the bytes: the wires could not carry it."""
    rows = "collective,ranks,size_bytes,time_us\nall_reduce,8,1073741824,2700\n"
    link = find_link(saved(tmp_path, rows, "b.csv"))
    link.require_below(600e9, "an H100")
    with pytest.raises(ShapeError, match=r"696 GB/s, and an H100 has 450 GB/s; sizes must be in"):
        link.require_below(450e9, "an H100")


def test_tables_of_vidur(tmp_path: Path) -> None:
    rows = (
        "time_stats.all_reduce.median,rank,num_workers,size,collective,devices_per_node\n"
        "0.02,0,4,1024,all_reduce,4\n0.04,1,4,1024,all_reduce,4\n0.03,2,4,1024,all_reduce,4\n"
    )
    link = find_link(saved(tmp_path, rows, "all_reduce.csv"))
    assert link.all_reduce_s(1024, 4) == pytest.approx(3e-5)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "run git lfs pull"),
        ("a,b\n1,2\n", "a CSV has the columns collective, ranks, size_bytes, time_us"),
        ("", "no output of nccl-tests"),
        ("collective,ranks,size_bytes,time_us\nall_reduce,1,8,9\n", "link.txt:2: 2 ranks or more"),
        ("collective,ranks,size_bytes,time_us\nallreduce,2,8,9\n", "did you mean 'all_reduce'?"),
        ("collective,ranks,size_bytes,time_us\nall_reduce,2,x,9\n", "link.txt:2: could not"),
        ("# algbw busbw\n 8 2 float sum -1 5.0 0.00 0.00 0\n", "'# Rank 0 ...'"),
        (NCCL.replace("13.11   13.11", "26.22   26.22"), "are 13.1 GB/s of all_reduce, and"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(ShapeError) as error:
        find_link(saved(tmp_path, text))
    assert line in str(error.value)
    assert "\n" not in str(error.value)


def test_machines_have_names_and_sources() -> None:
    assert all(len(source) > 10 for source in known_machines().values())
    assert find_link("DGX-H100").all_reduce_s(1e9, 8) > 1e9 / 450e9
    with pytest.raises(ShapeError, match="dgx-h100"):
        find_link("dgx-h10")
