"""The rows of a load test: what a server repeats of a request's own headers is hidden."""

from servetwin.loadtest.plan.schedule import ScheduledRequest
from servetwin.loadtest.report.rows import Sending, request_rows
from servetwin.workloads.request import Request
from tests.support.loadtest_server import event

KEY = "sk-very-secret-0123456789"


def test_the_header_of_one_request_is_no_name_of_an_answer() -> None:
    request = Request("r", 0.0, 5, 1, headers={"X-Key": KEY})
    answer = event(id=f"cmpl-{KEY}", choices=[{"text": "a", "finish_reason": "stop"}])
    sending = Sending(0, [(1, answer)], send=ScheduledRequest(0.0, request, b""))
    rows, _ = request_rows([sending], 0, "")
    assert rows[0]["response_id"] == "cmpl-***"
