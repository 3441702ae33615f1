"""Options of a live endpoint: where it is and how requests are put to it."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from typer import Option

from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.trace import Trace

if TYPE_CHECKING:
    from servetwin.loadtest.body.options import BodyOptions
    from servetwin.loadtest.endpoint import Endpoint
    from servetwin.workloads.generators.lora_mix import LoraMix


# An API: one of OpenAI's, or the server's own.
Api = Literal["completions", "chat", "embeddings", "native"]


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    """How requests are put to an endpoint."""

    PANEL: ClassVar = "Endpoint"

    dialect: Annotated[str | None, Option()] = None
    """openai, vllm, sglang, tgi, llamacpp, tensorrt-llm, triton, mlc or ollama; default what is
    recognised."""
    api: Annotated[Api | None, Option()] = None
    """API of the endpoint; default the dialect's own."""
    model: Annotated[str | None, Option()] = None
    """Served model; default the first."""
    prompt: Annotated[Literal["auto", "ids", "text"], Option()] = "auto"
    """Prompts as token ids (exact lengths) or as text."""
    force_length: Annotated[bool, Option("--force-length/--no-force-length")] = True
    """Demand the trace's exact output lengths, where the dialect can."""
    prompt_salt: Annotated[str | None, Option(metavar="TEXT")] = None
    """Prompts follow from the load and this text; by default every run has new ones, which no cache
    knows."""
    api_key_env: Annotated[str | None, Option()] = None
    """Environment variable with the API key; default OPENAI_API_KEY."""
    header: Annotated[tuple[str, ...], Option(metavar="'NAME: VALUE'")] = ()
    """Also send this header; repeatable. Its value is neither printed nor stored."""
    header_env: Annotated[tuple[str, ...], Option(metavar="NAME=VARIABLE")] = ()
    """Header with the value of an environment variable; repeatable."""
    header_file: Annotated[Path | None, Option(metavar="PATH")] = None
    """File with a header on each line."""
    insecure: Annotated[bool, Option("--insecure")] = False
    """Accept every certificate; the report says so."""
    on_too_long: Annotated[Literal["drop", "clip"] | None, Option()] = None
    """Requests longer than the server's context: leave them out or shorten them."""

    def for_prompts(self, trace: Trace, *, images: bool = False) -> "EndpointOptions":
        """Return the options with the API and the form that real prompts, or images, need.

        Raises ``LoadTestError`` where real prompts cannot be sent as chosen.
        """
        if images and self.api is None:
            return replace(self, api="chat").for_prompts(trace)
        real = [request.prompt for request in trace if request.prompt is not None]
        if not real:
            return self
        if self.prompt == "ids":
            raise LoadTestError("--prompt ids: the trace has real prompts, which are sent as text")
        if all(isinstance(prompt, str) for prompt in real):
            return replace(self, prompt="text")
        if self.api not in (None, "chat"):
            raise LoadTestError(f"--api {self.api}: the trace has chats; leave it out, or use chat")
        return replace(self, prompt="text", api="chat")

    def probe_generating(self, url: str) -> "Endpoint":
        """Probe an endpoint whose tokens shall be timed; raises ``LoadTestError`` without any."""
        if self.api == "embeddings":
            raise LoadTestError(
                "--api embeddings: has no tokens to time; only servetwin loadtest sends it"
            )
        return self.probe(url)

    def probe(self, url: str, options: "BodyOptions | None" = None) -> "Endpoint":
        """Find out what answers at ``url``; raises ``LoadTestError`` where nothing usable does.

        ``options`` say what bodies have beside model, prompt and length.
        """
        from servetwin.loadtest.body.options import PLAIN
        from servetwin.loadtest.credentials import use_headers, use_key_of
        from servetwin.loadtest.endpoint import probe

        if self.api_key_env:
            use_key_of(self.api_key_env)
        if self.header or self.header_env or self.header_file:
            use_headers(self.header, self.header_env, self.header_file)
        same = ("model", "api", "prompt", "force_length", "dialect", "insecure")
        given: dict[str, Any] = {name: getattr(self, name) for name in same}
        return probe(url, **given, salt=self.prompt_salt, options=options or PLAIN)


@dataclass(frozen=True, slots=True)
class BodyChoice:
    """How answers are sampled and delivered, and what else a request has."""

    PANEL: ClassVar = "Body"

    sampling: Annotated[str | None, Option(metavar="KEY=VALUE,...")] = None
    """Sampling parameters, such as temperature=0.7,top_p=0.9; default greedy."""
    extra_body: Annotated[str | None, Option(metavar="JSON|@FILE")] = None
    """Further fields of every body, as a JSON object."""
    stream: Annotated[bool, Option("--stream/--no-stream")] = True
    """Answers as streams; without, TTFT and TPOT are undefined."""
    image: Annotated[str | None, Option(metavar="WxH[,COUNT]|URL[,COUNT]")] = None
    """Images in every chat: generated, or at a URL."""

    def options(self, lora: "LoraMix | None") -> "BodyOptions":
        """Return the options, with a mix of models; raises ``LoadTestError`` for what is wrong."""
        from servetwin.loadtest.body.extra_body import parse_extra_body, parse_sampling
        from servetwin.loadtest.body.images import parse_images
        from servetwin.loadtest.body.options import BodyOptions

        return BodyOptions(
            sampling=parse_sampling(self.sampling) if self.sampling is not None else {},
            extra=parse_extra_body(self.extra_body) if self.extra_body is not None else {},
            whole=not self.stream,
            lora=lora,
            images=parse_images(self.image) if self.image is not None else None,
        )


def endpoint_line(endpoint: "Endpoint") -> str:
    """Return one line on how requests will be put to ``endpoint``."""
    prompts = {"ids": "token ids", "text": "text"}[endpoint.prompt]
    length = "forced" if endpoint.force_length else "free"
    outputs = "no outputs" if endpoint.api == "embeddings" else f"output length {length}"
    return (
        f"endpoint: {endpoint.url}, dialect {endpoint.dialect} ({endpoint.api}), model "
        f"{endpoint.model}, prompts as {prompts}, {outputs}"
    )


@dataclass(frozen=True, slots=True)
class BlackBoxOptions:
    """How much a black-box calibration may cost."""

    PANEL: ClassVar = "Endpoint"

    max_minutes: Annotated[float, Option(min=0.1)] = 5.0
    """Minutes that a black-box calibration may take."""
    max_requests: Annotated[int, Option(min=20)] = 400
    """Requests that a black-box calibration may send."""
