"""Tables: runs of steps, provenance and ranges."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.policies.batch import BatchShape
from servetwin.sim.step_times.tables import Table
from tests.support.table_levels import kinds


@given(
    decodes=st.integers(0, 50),
    each=st.integers(1, 5000),
    chunks=st.lists(st.tuples(st.integers(0, 3000), st.integers(2, 3000)), max_size=2),
    steps=st.integers(1, 30),
)
@pytest.mark.parametrize("kind", ["operators", "phases"])
def test_a_run_of_steps_is_its_single_steps_to_the_bit(
    tables: dict[str, Table],
    kind: str,
    decodes: int,
    each: int,
    chunks: list[tuple[int, int]],
    steps: int,
) -> None:
    first = BatchShape(decodes, decodes * each, decodes, tuple(chunks))
    run = tables[kind].seconds(first, steps)
    single = [
        tables[kind].seconds(first._replace(decode_context_tokens=decodes * (each + step)))[0]
        for step in range(steps)
    ]
    assert run.tolist() == single


@pytest.mark.parametrize(
    ("kind", "decodes", "each", "chunks", "chunk_rows", "chunk_start", "expected"),
    [
        ("operators", 8, 513, 0, 0, 0, "measured"),
        ("operators", 8, 514, 0, 0, 0, "interpolated"),
        ("operators", 9, 513, 0, 0, 0, "interpolated"),
        ("operators", 8, 2050, 0, 0, 0, "extrapolated"),
        ("operators", 33, 513, 0, 0, 0, "extrapolated"),
        ("operators", 0, 0, 1, 512, 1024, "measured"),
        ("operators", 0, 0, 1, 500, 1024, "interpolated"),
        ("operators", 0, 0, 1, 512, 4000, "extrapolated"),
        ("operators", 0, 0, 2, 2048, 0, "extrapolated"),  # 4096 rows
        ("operators", 8, 513, 1, 512, 1024, "interpolated"),  # 520 rows
        ("phases", 4, 576, 0, 0, 0, "measured"),
        ("phases", 5, 576, 0, 0, 0, "interpolated"),
        ("phases", 17, 576, 0, 0, 0, "extrapolated"),
        ("phases", 0, 0, 4, 512, 0, "measured"),
        ("phases", 0, 0, 4, 100, 0, "extrapolated"),  # below the shortest prompt
        ("phases", 0, 0, 1, 512, 512, "interpolated"),
        ("phases", 4, 576, 1, 512, 0, "interpolated"),
        ("phases", 4, 576, 1, 4096, 0, "extrapolated"),
    ],
)
def test_every_time_says_where_it_comes_from(
    tables: dict[str, Table],
    kind: str,
    decodes: int,
    each: int,
    chunks: int,
    chunk_rows: int,
    chunk_start: int,
    expected: str,
) -> None:
    query = (decodes, decodes * each, chunks, chunk_rows, chunk_start)
    assert kinds(tables[kind], *query) == [expected]
    columns = [[value, value] for value in query]
    assert kinds(tables[kind], *columns) == 2 * [expected]


def test_ranges_are_those_of_the_points(tables: dict[str, Table]) -> None:
    ranges = tables["operators"].ranges
    assert ranges["products and norms"] == {"rows": (1, 2048)}
    assert ranges["prefill attention"] == {"chunk rows": (32, 2048), "chunk start": (0, 4032)}
    assert ranges["decode attention"] == {"decodes": (1, 32), "context": (0, 2048)}
    assert tables["phases"].ranges["decode"]["context"] == (128 + 64, 2048 + 128)


def test_the_summary_has_a_line_per_part_with_its_error(tables: dict[str, Table]) -> None:
    lines = tables["operators"].summary()
    assert len(lines) == 5
    errors = tables["operators"].held_out_errors()
    for line, (part, error) in zip(lines, errors.items(), strict=True):
        assert line.startswith(f"{part}: ")
        assert error is not None
        assert str(error) in line
        assert f"{error.median:.1%} (median), {error.p90:.1%} (p90)" in line
    assert "rows 1 to 2,048" in lines[0]
