"""Requests of ServeGen clients, as ``workloads.generators.servegen_files`` reads them."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import numpy as np

from workloads.errors import TraceError
from workloads.generators.arrivals import FloatArray, arrivals_within, check_positive
from workloads.generators.generate import random_streams
from workloads.generators.lengths import IntArray
from workloads.generators.servegen_files import Lengths, ServeGenClient, Window
from workloads.request import Request
from workloads.rows import counted
from workloads.trace import Trace

SOURCE = "servegen"

Modal = Mapping[str, int] | None


def generate_servegen(
    clients: Sequence[ServeGenClient],
    seed: int,
    start_s: float = 0.0,
    span_s: float = 600.0,
    rate_scale: float = 1.0,
) -> Trace:
    """Generate the requests of clients from ``start_s`` on, at ``rate_scale`` times their rates.

    Each window is a process of its own that began long ago, so its mean rate is exact. A client is
    a ``tenant``. Prompt and output are drawn independently of one another: the source has no joint
    distribution. Each client has its own random streams: leaving one out changes no other.

    Raises TraceError for a span that no client's windows cover, or without a single request.
    """
    check_positive("rate factor", rate_scale)
    check_positive("span", span_s)
    if start_s < 0:
        raise TraceError(f"a start must be 0 or positive, not {start_s:g} s")
    requests = [
        request
        for client in clients
        for request in _client_requests(client, seed, start_s, start_s + span_s, rate_scale)
    ]
    if not requests:
        last_s = max(client.windows[-1].end_s for client in clients)
        raise TraceError(
            f"no requests from {start_s:g} to {start_s + span_s:g} s: the windows end at"
            f" {last_s:g} s; try another span or a higher rate scale"
        )
    requests.sort(key=lambda request: request.arrival_s)
    names = ", ".join(client.name for client in clients)
    note = (
        f"{counted(len(clients), 'ServeGen client')} ({names}), {start_s:g} to"
        f" {start_s + span_s:g} s, rates scaled by {rate_scale:g}, seed {seed}; prompt and output"
        " drawn independently"
    )
    return Trace(tuple(requests), SOURCE, notes=(note,))


def _client_requests(
    client: ServeGenClient, seed: int, start_s: float, end_s: float, rate_scale: float
) -> Iterator[Request]:
    number = int(client.name.removeprefix("chunk-"))
    arrivals_rng, lengths_rng = random_streams(seed, 2, number)
    arrivals_s = np.concatenate([
        _window_arrivals_s(window, start_s, end_s, rate_scale, arrivals_rng)
        for window in client.windows
    ])  # fmt: skip
    times_s = (arrivals_s - start_s).round(6).tolist()
    drawn = chain.from_iterable(
        _draw(lengths, requests, lengths_rng)
        for lengths, requests in _by_length_window(client, arrivals_s)
    )
    for row, (arrival_s, lengths) in enumerate(zip(times_s, drawn, strict=True), 1):
        prompt_tokens, output_tokens, reasoning_tokens, modal = lengths
        yield Request(
            f"{SOURCE}:{client.name}.{row}",
            arrival_s,
            prompt_tokens,
            output_tokens,
            reasoning_tokens=reasoning_tokens,
            tenant=client.name,
            modal=modal,
        )


def _window_arrivals_s(
    window: Window, start_s: float, end_s: float, rate_scale: float, rng: np.random.Generator
) -> FloatArray:
    """Return the arrivals of the window that lie in the span."""
    from_s, to_s = max(window.start_s, start_s), min(window.end_s, end_s)
    if window.process is None or from_s >= to_s:
        return np.empty(0)
    # at k times the rate, k times the time passes in the process
    process_s = arrivals_within(window.process, rate_scale * (to_s - from_s), rng)
    return from_s + process_s / rate_scale


def _by_length_window(
    client: ServeGenClient, arrivals_s: FloatArray
) -> Iterator[tuple[Lengths, int]]:
    """Count the arrivals of each length window: the latest that has started, else the first."""
    starts_s = np.array(list(client.lengths))
    index = np.maximum(np.searchsorted(starts_s, arrivals_s, side="right") - 1, 0)
    windows, counts = np.unique(index, return_counts=True)
    for window, requests in zip(windows.tolist(), counts.tolist(), strict=True):
        yield client.lengths[float(starts_s[window])], requests


def _draw(
    lengths: Lengths, requests: int, rng: np.random.Generator
) -> Iterator[tuple[int, int, int | None, Modal]]:
    """Draw prompt, output, reasoning and images of each request; an empty prompt or output becomes
    1.
    """
    prompt_rng, output_rng, part_rng = rng.spawn(3)
    prompt_law = lengths.get("input_tokens") or lengths["text_tokens"]
    prompts = _whole(prompt_law.sample(requests, prompt_rng))
    outputs = np.maximum(_whole(lengths["output_tokens"].sample(requests, output_rng)), 1)
    reasoning: list[int | None] = [None] * requests
    modal: list[Modal] = [None] * requests
    if ratio := lengths.get("reason_ratio"):
        reasoning = _whole(outputs * np.clip(ratio.sample(requests, part_rng), 0, 1)).tolist()
    if "image_count" in lengths and "image_tokens" in lengths:
        images, tokens = _images(lengths, requests, part_rng)
        modal = [_modal(*pair) for pair in zip(images.tolist(), tokens.tolist(), strict=True)]
        prompts = prompts + tokens
    prompts = np.maximum(prompts, 1)
    return zip(prompts.tolist(), outputs.tolist(), reasoning, modal, strict=True)


def _images(lengths: Lengths, requests: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Draw the number of images of each request and their total tokens; the source has them per
    image.
    """
    images = _whole(lengths["image_count"].sample(requests, rng))
    each = _whole(lengths["image_tokens"].sample(int(images.sum()), rng))
    before = np.concatenate([[0], np.cumsum(each)])
    ends = np.cumsum(images)
    return images, before[ends] - before[ends - images]


def _modal(images: int, image_tokens: int) -> Modal:
    return {"images": images, "image_tokens": image_tokens} if images else None


def _whole(values: FloatArray) -> IntArray:
    return np.rint(values).astype(np.int64)
