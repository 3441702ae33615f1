"""The body of a request: the dialect's, with what the options of the load test add to it."""

from typing import Any

from servetwin.loadtest.body.body_options import BodyOptions
from servetwin.loadtest.dialects.dialect import Api, Dialect, PreparedRequest

_STREAMING = ("stream", "stream_options")


def request_body(
    dialect: Dialect, api: Api, request: PreparedRequest, options: BodyOptions, name: str
) -> dict[str, Any]:
    """Return the JSON body of a request; its images follow from ``name``."""
    if options.images:
        request = request._replace(messages=options.images.added(request.chat, name))
    fields = dialect.body(api, request)
    if options.sampling:
        fields = dialect.sampled(api, fields, options.sampling)
    if options.whole:
        fields = {key: value for key, value in fields.items() if key not in _STREAMING}
    return {**fields, **options.extra}
