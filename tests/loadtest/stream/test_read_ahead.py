"""Recorded answers: framed as the standard says, read in any steps, and read while they come."""

import asyncio
from collections.abc import Iterator

from servetwin.loadtest.http.exchange import Exchange
from servetwin.loadtest.http.recorded_reads import RecordedReads
from servetwin.loadtest.options import LoadOptions
from servetwin.loadtest.plan.schedule import ClockZero, build_schedule
from servetwin.loadtest.run.worker_client import WorkerClient
from servetwin.loadtest.stream.read_ahead import ReadAhead
from servetwin.loadtest.stream.stream_reader import TokenStream
from tests.support.loadtest_server import text
from tests.support.mock_endpoint import completions, evenly, mocked, plan


class Watched(WorkerClient):
    """A client that lets its reader be seen."""

    @property
    def ahead(self) -> ReadAhead:
        return self._ahead


def test_answers_are_read_while_others_come() -> None:
    """Forty of fifty tokens in half a second, and one that keeps the test going long after."""
    with mocked(plan("slow-start:requests=1,extra_ms=900", ttft_ms=5, itl_ms=5)) as (server,):
        endpoint, trace = completions(server), evenly(40, 80, 50)

        async def main() -> tuple[Watched, int, list[Exchange]]:
            options = LoadOptions()
            schedule = build_schedule(trace, endpoint, options)
            async with Watched(endpoint, schedule, options) as client:
                await client.run(ClockZero.after(0.1))
                return client, len(client.ahead.unread), [*client.ahead.unread]

        client, answers, left = asyncio.run(main())
    assert answers <= 3
    assert sum(len(list(exchange.reads)) for exchange in left) < 40 * 50 / 10
    rows = client.result().rows
    assert [row["output_tokens"] for row in rows] == [50] * 40
    assert all((row["chunk_s"][1:] >= row["chunk_s"][:-1]).all() for row in rows)


def recorded(events: int) -> Exchange:
    reads = RecordedReads()
    for index in range(events):
        reads.add(index, text(f"t{index}"))
    return Exchange(0, reads)


def test_what_is_read_of_an_ended_answer_is_given_up() -> None:
    """An answer still under way keeps its bytes; the next reader goes on where it stood."""

    async def main() -> ReadAhead:
        ahead = ReadAhead()
        for exchange in exchanges:
            ahead.begin(exchange)
        with ahead.running():
            await asyncio.sleep(0.3)
        return ahead

    exchanges = [recorded(500) for _ in range(4)]
    for exchange in exchanges[:3]:
        exchange.ended = True
    ahead = asyncio.run(main())
    assert [len(list(exchange.reads)) for exchange in exchanges] == [0, 0, 0, 500]
    assert [len(stream.stamps_ns) for stream in streams(ahead, exchanges)] == [500] * 4


def streams(ahead: ReadAhead, exchanges: list[Exchange]) -> Iterator[TokenStream]:
    return (ahead.stream(exchange) for exchange in exchanges)
