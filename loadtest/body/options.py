"""What a request's body has beside its prompt and length: sampling, images, a LoRA mix."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from servetwin.loadtest.body.images import Images
from servetwin.loadtest.dialects.dialect import Api, Dialect, PreparedRequest
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.generators.lora_mix import LoraMix

_STREAMED_ONLY = "--no-stream: the native API is read as a stream; use --api completions or chat"


@dataclass(frozen=True, slots=True)
class BodyOptions:
    """The same for all requests of a load test.

    ``sampling`` and ``extra`` are fields of the body, and the latter win. With ``whole`` the answer
    is not streamed. ``lora`` draws the model of each request, ``images`` are added to its chat.
    """

    sampling: Mapping[str, float] = field(default_factory=dict)
    extra: Mapping[str, object] = field(default_factory=dict)
    whole: bool = False
    lora: LoraMix | None = None
    images: Images | None = None


# A greedy stream of the one model.
PLAIN = BodyOptions()


def check_options(options: BodyOptions, api: Api, models: Sequence[str]) -> None:
    """Raise ``LoadTestError`` for options that the API, or the server's ``models``, cannot have.

    Without any ``models`` every name may be one.
    """
    for message in _contradictions(options, api, models):
        raise LoadTestError(message)


def _contradictions(options: BodyOptions, api: Api, models: Sequence[str]) -> Iterator[str]:
    if options.images and api != "chat":
        yield f"--image and --api {api}: images are parts of a chat; use --api chat"
    if options.whole and api == "native":
        yield _STREAMED_ONLY
    if options.lora and api == "native":
        yield "--lora-modules: the native API has none; use --api completions or chat"
    if options.sampling and api == "embeddings":
        yield "--sampling and --api embeddings: an embedding is not sampled; leave it out"
    for name in options.lora.shares if options.lora else ():
        if models and name not in models:
            yield f"--lora-modules {name}: not served there; it serves {', '.join(models)}"


_STREAMING = ("stream", "stream_options")


def request_body(
    dialect: Dialect, api: Api, request: PreparedRequest, options: BodyOptions, name: str
) -> dict[str, object]:
    """Return the JSON body of a request; its images follow from ``name``."""
    if options.images:
        request = request._replace(messages=options.images.added(request.chat, name))
    fields = dialect.body(api, request)
    if options.sampling:
        fields = dialect.sampled(api, fields, options.sampling)
    if options.whole:
        fields = {key: value for key, value in fields.items() if key not in _STREAMING}
    return {**fields, **options.extra}
