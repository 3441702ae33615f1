"""Limits as written on the command line."""

import pytest

from servetwin.loadtest.report.slo import parse_slo
from servetwin.sim.records.metrics import SLO
from servetwin.workloads.errors import LoadTestError

EXAMPLE = "write for example ttft=500ms,tpot=50ms,e2e=2s"


@pytest.mark.parametrize(
    ("text", "slo"),
    [
        ("ttft=500ms", SLO(ttft_s=0.5)),
        ("ttft=500ms,tpot=50ms,e2e=2s", SLO(0.5, 0.05, 2.0)),
        (" e2e = 1.5 s , tpot=250us", SLO(tpot_s=0.00025, e2e_s=1.5)),
    ],
)
def test_limits_as_people_write_them(text: str, slo: SLO) -> None:
    found = parse_slo(text)
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        assert getattr(found, name) == pytest.approx(getattr(slo, name))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f"--slo: '' is not LIMIT=TIME; {EXAMPLE}"),
        ("itl=5ms", f"--slo 'itl=5ms': unknown limit 'itl'; {EXAMPLE}"),
        ("ttft", f"--slo: 'ttft' is not LIMIT=TIME; {EXAMPLE}"),
        ("ttft=1s,", f"--slo: '' is not LIMIT=TIME; {EXAMPLE}"),
        ("ttft=1s,ttft=2s", f"--slo 'ttft=2s': ttft is given twice; {EXAMPLE}"),
        *(
            (f"ttft{rest}", f"--slo 'ttft{rest}': not a positive time with its unit; {EXAMPLE}")
            for rest in (
                "=",
                "=500",
                "=0ms",
                "=-1s",
                "=nan s",
                "=1m",
                "=1.2.3s",
                "=fast",
                "=" + "9" * 400 + "s",
            )
        ),
    ],
)
def test_limits_that_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(LoadTestError) as caught:
        parse_slo(text)
    assert str(caught.value) == message
