"""ServeGen clients: rates by window, lengths by window, tenants, and what is wrong with a file."""

import ast
import gzip
import json
from collections import Counter
from math import sqrt
from pathlib import Path

import numpy as np
import pytest

from servetwin.workloads.errors import TraceError
from servetwin.workloads.generators.servegen import generate_servegen, read_clients
from servetwin.workloads.request import Request
from servetwin.workloads.statistics.statistics import coefficient_of_variation
from tests.support.paths import TRACES

pytestmark = pytest.mark.slow

SERVEGEN = TRACES / "servegen"
WINDOWS = "0,2,1.5,Gamma,0.44,1\n600,0,0,,0,0\n1200,5,1,Weibull,1.0,0.2\n"
LENGTHS = {
    "0": {"input_tokens": "{10: 0.25, 30: 0.75}", "output_tokens": "{0: 0.5, 8: 0.5}"},
    "600": {"input_tokens": "{}", "output_tokens": "{}"},
    "1200": {"input_tokens": "{7: 1.0}", "output_tokens": "{3: 1.0}"},
}


def write_client(folder: Path, number: int, windows: str = WINDOWS, lengths: object = None) -> None:
    (folder / f"chunk-{number}-trace.csv").write_text(windows)
    text = json.dumps(LENGTHS) if lengths is None else json.dumps(lengths)
    (folder / f"chunk-{number}-dataset.json").write_text(text)


def made(folder: Path, **options: float) -> list[Request]:
    return list(generate_servegen(read_clients(folder), 0, **options))


def test_windows_have_their_rates_and_lengths(tmp_path: Path) -> None:
    write_client(tmp_path, 3)
    requests = made(tmp_path, span_s=1800, rate_scale=10)
    counts = Counter(int(r.arrival_s // 600) for r in requests)
    assert counts[0] == pytest.approx(12_000, abs=4 * sqrt(12_000 / 0.44))  # IDC = CV^2 = 1 / shape
    assert counts[1] == 0
    assert counts[2] == pytest.approx(30_000, abs=4 * sqrt(30_000))
    first = [r for r in requests if r.arrival_s < 600]
    prompts = Counter(r.prompt_tokens for r in first)
    assert set(prompts) == {10, 30}
    assert prompts[30] / len(first) == pytest.approx(0.75, abs=4 * sqrt(0.19 / len(first)))
    assert {r.output_tokens for r in first} == {1, 8}  # an empty output becomes one token
    last = {(r.prompt_tokens, r.output_tokens) for r in requests if r.arrival_s >= 1200}
    assert last == {(7, 3)}
    gaps_s = np.diff([r.arrival_s for r in first])
    assert coefficient_of_variation(gaps_s) == pytest.approx(0.44**-0.5, rel=0.08)


def test_a_span_within_windows_starts_at_zero(tmp_path: Path) -> None:
    write_client(tmp_path, 3)
    requests = made(tmp_path, start_s=1250, span_s=100)
    assert 0 <= requests[0].arrival_s < requests[-1].arrival_s < 100
    assert len(requests) == pytest.approx(500, abs=4 * sqrt(500))


def test_a_client_is_a_tenant_with_streams_of_its_own(tmp_path: Path) -> None:
    for number in (2, 10):
        write_client(tmp_path, number)
    both = made(tmp_path)
    assert both == made(tmp_path)
    assert {r.tenant for r in both} == {"chunk-2", "chunk-10"}
    alone = generate_servegen(read_clients(tmp_path, ["10"]), 0)
    assert list(alone) == [r for r in both if r.tenant == "chunk-10"]
    assert alone.notes[0].startswith("1 ServeGen client (chunk-10), 0 to 600 s, rates scaled by 1")
    assert [c.name for c in read_clients(tmp_path)] == ["chunk-2", "chunk-10"]
    assert len({r.request_id for r in both}) == len(both)


def test_zipped_clients_are_read_too(tmp_path: Path) -> None:
    write_client(tmp_path, 1)
    plain = made(tmp_path)
    for path in list(tmp_path.iterdir()):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert made(tmp_path) == plain


def test_reasoning_and_images(tmp_path: Path) -> None:
    lengths = {
        "0": {
            "text_tokens": "{5: 1.0}",
            "image_count": "{0: 0.5, 2: 0.5}",
            "image_tokens": "{100: 1.0}",
            "output_tokens": "{10: 1.0}",
            "reason_ratio": "{0.0: 0.0, 0.7: 1.0}",
        }
    }
    write_client(tmp_path, 1, lengths=lengths)
    requests = made(tmp_path)
    kinds = {
        (r.prompt_tokens, None if r.modal is None else tuple(r.modal.items())) for r in requests
    }
    assert kinds == {(5, None), (205, (("images", 2), ("image_tokens", 200)))}
    assert {r.reasoning_tokens for r in requests} == {7}


DATASET, TRACE = "chunk-1-dataset.json", "chunk-1-trace.csv"


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        (TRACE, "", f"{TRACE}: empty, a client has at least one window"),
        (TRACE, "0,1,1\n", f"{TRACE}:1: 3 cells, not start,rate,cv,family,shape,scale"),
        (TRACE, "0,x,1,Gamma,1,1\n", f"{TRACE}:1: rate: not a number from 0 on ('x')"),
        (TRACE, "0,nan,1,Gamma,1,1\n", f"{TRACE}:1: rate: not a number from 0 on ('nan')"),
        (TRACE, "-1,1,1,Gamma,1,1\n", f"{TRACE}:1: start: not a number from 0 on ('-1')"),
        (TRACE, "0,1,1,Gama,1,1\n", f"{TRACE}:1: family: must be Gamma or Weibull ('Gama')"),
        (TRACE, "0,1,1,Gamma,0,1\n", f"{TRACE}:1: shape: impossible for Gamma gaps ('0')"),
        (
            TRACE,
            "0,1,1,Weibull,0.001,1\n",
            f"{TRACE}:1: shape: impossible for Weibull gaps ('0.001')",
        ),
        (
            TRACE,
            "0,1,1,Gamma,1,1\n0,1,1,Gamma,1,1\n",
            f"{TRACE}:2: a window starts at 0 s, after 0",
        ),
        (TRACE, "0,1,1,Gamma,1e-320,1\n", "shape: impossible for Gamma gaps ('1e-320')"),
        (TRACE, "0,1\r,1,Gamma,1,1\n", f"{TRACE}: not CSV: new-line character"),
        (DATASET, "{", f"{DATASET}: not JSON"),
        (DATASET, "[]", f"{DATASET}: not a JSON object of windows"),
        (DATASET, "{}", f"{DATASET}: no window has lengths"),
        (DATASET, '{"x": {}}', f"{DATASET}: window: not a number from 0 on ('x')"),
        (DATASET, '{"0": 3}', f"{DATASET}: window '0': not a JSON object of fields"),
        (
            DATASET,
            '{"0": {"output_tokens": "{1: 1}"}}',
            f"{DATASET}: window '0': field input_tokens or text_tokens is missing",
        ),
        (
            DATASET,
            '{"0": {"input_tokens": {"1": 1}, "output_tokens": "{1: 1}"}}',
            "window '0': input_tokens: not a dictionary written as a string",
        ),
        (
            DATASET,
            '{"0": {"input_tokens": "{1: x}", "output_tokens": "{1: 1}"}}',
            "window '0': input_tokens: not a dictionary of numbers ('{1: x}')",
        ),
        (
            DATASET,
            '{"0": {"input_tokens": "{1: 1}", "output_tokens": "{1: 0}"}}',
            "window '0': output_tokens: values and probabilities must be 0 or positive",
        ),
        (
            DATASET,
            '{"0": {"input_tokens": "{1e300: 1}", "output_tokens": "{1: 1}"}}',
            "window '0': input_tokens: values and probabilities must be 0 or positive, up to 2147",
        ),
    ],
)
def test_bad_files_are_named(tmp_path: Path, file: str, text: str, message: str) -> None:
    write_client(tmp_path, 1)
    (tmp_path / file).write_text(text)
    with pytest.raises(TraceError) as raised:
        read_clients(tmp_path)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_more_requests_than_a_trace_has_are_refused_before_they_are_made(tmp_path: Path) -> None:
    write_client(tmp_path, 1, "0,1e9,1,Gamma,1,1\n")
    with pytest.raises(TraceError, match=r"^6e\+11 requests from 0 to 600 s; a trace has at most"):
        made(tmp_path)
    assert 500 < len(made(tmp_path, span_s=1e-6)) < 2000


def test_bad_questions_are_answered(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no ServeGen clients here"):
        read_clients(tmp_path)
    write_client(tmp_path, 12)
    clients = read_clients(tmp_path)
    with pytest.raises(TraceError, match="no ServeGen client 'chunk-13'; did you mean 'chunk-12'"):
        read_clients(tmp_path, ["13"])
    with pytest.raises(TraceError, match=r"no requests from 9000 .*: the windows end at 1800 s"):
        generate_servegen(clients, 0, start_s=9000)
    with pytest.raises(TraceError, match="a start must be 0 or positive, not -1 s"):
        generate_servegen(clients, 0, start_s=-1)
    with pytest.raises(TraceError, match="the rate factor must be a positive number, not 0"):
        generate_servegen(clients, 0, rate_scale=0)
    with pytest.raises(TraceError, match="a seed must be 0 or positive, not -1"):
        generate_servegen(clients, -1)
    (tmp_path / "chunk-12-dataset.json").unlink()
    with pytest.raises(TraceError, match=r"chunk-12-dataset.json: no such file"):
        read_clients(tmp_path)


@pytest.mark.parametrize(
    ("folder", "clients", "rate_scale", "span_s"),
    [
        ("language/m-small", 12, 0.02, 1800.0),
        ("multimodal/mm-image", 28, 0.5, 1800.0),
        ("reason/deepseek-r1", 58, 0.5, 7200.0),
    ],
)
def test_public_clients_keep_their_rates(
    folder: str, clients: int, rate_scale: float, span_s: float
) -> None:
    if not (SERVEGEN / folder).exists():
        pytest.skip(f"{folder} is not beside the repository")
    found = read_clients(SERVEGEN / folder)
    assert len(found) == clients
    requests = list(generate_servegen(found, 0, span_s=span_s, rate_scale=rate_scale))
    windows = [w for client in found for w in client.windows if w.process and w.start_s < span_s]
    expected = sum(600 * rate_scale * w.process.rate_per_s for w in windows if w.process)
    deviation = sqrt(
        sum(600 * rate_scale * w.process.rate_per_s * w.process.cv**2 for w in windows)  # type: ignore[union-attr]
    )
    assert len(requests) == pytest.approx(expected, abs=4 * deviation)
    if "reason" in folder:
        check_reasoning(SERVEGEN / folder, requests)


def check_reasoning(folder: Path, requests: list[Request]) -> None:
    """The share of reasoning is the mean of the clients' distributions, by their requests."""
    counts = Counter(r.tenant for r in requests)
    expected = 0.0
    for tenant, count in counts.items():
        windows = json.loads(gzip.decompress((folder / f"{tenant}-dataset.json.gz").read_bytes()))
        tables = [ast.literal_eval(fields["reason_ratio"]) for fields in windows.values()]
        expected += count * sum(v * p for v, p in next(filter(None, tables)).items())
    expected /= len(requests)
    shares = [(r.reasoning_tokens or 0) / r.output_tokens for r in requests]
    error = 4 * float(np.std(shares)) / sqrt(len(shares))
    assert np.mean(shares) == pytest.approx(expected, abs=error)
