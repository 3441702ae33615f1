"""Servers of each kind, small enough to read: the pages and streams that their documents show.

They count one token per word or token id of a prompt and answer with as many tokens as are asked.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

from servetwin.loadtest.dialects.server_probe import ServerProbe
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace

Answer = Callable[[Mapping[str, Any]], list[bytes]]
CONTEXT = 4096
REQUEST = Request("r0", 0.0, prompt_tokens=7, output_tokens=5)
TWO_REQUESTS = Trace((REQUEST, Request("r1", 0.02, 9, 3)), "two.jsonl")


@dataclass(frozen=True)
class Kind:
    """Pages to GET and answers to POST by path; ``asked`` are the paths and bodies that came."""

    pages: Mapping[str, Any] = field(default_factory=dict)
    answers: Mapping[str, Answer] = field(default_factory=dict)
    content_type: str = "text/event-stream"
    server: str = "uvicorn"
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)


def sse(*events: Mapping[str, Any], done: bool = False) -> list[bytes]:
    lines = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events]
    return [*lines, b"data: [DONE]\n\n"] if done else lines


def models(owner: str, **more: Any) -> dict[str, Any]:
    card = {"id": "m", "object": "model", "created": 0, "owned_by": owner, **more}
    return {"/v1/models": {"object": "list", "data": [card]}}


def length_of(prompt: Any) -> int:
    return len(prompt.split() if isinstance(prompt, str) else prompt)


def openai_answer(body: Mapping[str, Any]) -> list[bytes]:
    count = body["max_tokens"]
    each = body["stream_options"].get("continuous_usage_stats", False)
    prompt_tokens = length_of(body.get("prompt") or body["messages"][0]["content"])

    def usage(made: int) -> dict[str, int]:
        total = prompt_tokens + made
        return {
            "prompt_tokens": prompt_tokens, "completion_tokens": made, "total_tokens": total,
        }  # fmt: skip

    def choice(index: int) -> dict[str, Any]:
        finish = "length" if index == count - 1 else None
        words = {"text": " w"} if "prompt" in body else {"delta": {"content": " w"}}
        return {"index": 0, **words, "finish_reason": finish}

    events: list[dict[str, Any]] = [
        {"id": "c-1", "choices": [choice(i)], "usage": usage(i + 1) if each else None}
        for i in range(count)
    ]
    return sse(*events, {"id": "c-1", "choices": [], "usage": usage(count)}, done=True)


def embedding_answer(body: Mapping[str, Any]) -> list[bytes]:
    tokens = length_of(body["input"])
    vector = {"object": "embedding", "index": 0, "embedding": [0.5, -0.25]}
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return [json.dumps({"object": "list", "data": [vector], "usage": usage}).encode()]


OPENAI_ANSWERS = {
    "/v1/embeddings": embedding_answer,
    "/v1/completions": openai_answer,
    "/v1/chat/completions": openai_answer,
}


def transformers_answer(body: Mapping[str, Any]) -> list[bytes]:
    """The usage comes with the last event, which has no text; fields of others are refused."""
    assert "min_tokens" not in body
    assert json.loads(body["generation_config"]) == {"eos_token_id": -1}
    count = body["max_tokens"]
    prompt_tokens = length_of(body.get("prompt") or body["messages"][0]["content"])
    words = {"text": " w"} if "prompt" in body else {"delta": {"content": " w"}}
    blank: dict[str, Any] = {"text": ""} if "prompt" in body else {"delta": {}}
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": count}
    role = [] if "prompt" in body else [{"choices": [{"delta": {"role": "assistant"}}]}]
    texts = [{"id": "t-1", "choices": [{"index": 0, **words}]}] * count
    last = {"choices": [{"index": 0, "finish_reason": "length", **blank}], "usage": usage}
    return sse(*role, *texts, last)


TRANSFORMERS_PATHS: dict[str, Any] = {
    path: {} for path in ("/v1/completions", "/v1/responses", "/load_model", "/reset", "/health")
}


def sglang_answer(body: Mapping[str, Any]) -> list[bytes]:
    count = body["sampling_params"]["max_new_tokens"]
    prompt_tokens = length_of(body.get("input_ids") or body["text"])
    events = [
        {
            "text": " w" * made,
            "output_ids": list(range(made)),
            "meta_info": {
                "id": "s-1",
                "finish_reason": {"type": "length", "length": count} if made == count else None,
                "prompt_tokens": prompt_tokens,
                "completion_tokens": made,
                "cached_tokens": 2,
            },
        }
        for made in range(1, count + 1)
    ]
    return sse(*events, done=True)


def tgi_answer(body: Mapping[str, Any]) -> list[bytes]:
    count = body["parameters"]["max_new_tokens"]
    details = {
        "finish_reason": "length",
        "generated_tokens": count,
        "seed": None,
        "input_length": length_of(body["inputs"]),
    }
    return sse(
        *(
            {
                "index": index,
                "token": {"id": index, "text": " w", "logprob": -1.0, "special": False},
                "generated_text": " w" * count if index == count else None,
                "details": details if index == count else None,
            }
            for index in range(1, count + 1)
        )
    )


def llamacpp_answer(body: Mapping[str, Any]) -> list[bytes]:
    count = body["n_predict"]
    tokens = [
        {"index": 0, "content": " w", "tokens": [index], "stop": False} for index in range(count)
    ]
    last = {
        "content": "",
        "tokens": [],
        "stop": True,
        "stop_type": "limit",
        "tokens_predicted": count,
        "tokens_evaluated": length_of(body["prompt"]),
        "timings": {"prompt_n": 5, "cache_n": 2, "predicted_n": count},
    }
    return sse(*tokens, last)


def triton_answer(body: Mapping[str, Any]) -> list[bytes]:
    event = {"model_name": "ensemble", "model_version": "1", "text_output": " w"}
    return sse(*[event] * body["max_tokens"])


def ollama_answer(body: Mapping[str, Any]) -> list[bytes]:
    count = body["options"]["num_predict"]
    lines: list[dict[str, Any]] = [{"model": "m:latest", "response": " w", "done": False}] * count
    last = {
        "model": "m:latest",
        "response": "",
        "done": True,
        "done_reason": "length",
        "prompt_eval_count": length_of(body["prompt"]),
        "eval_count": count,
    }
    return [json.dumps(line).encode() + b"\n" for line in [*lines, last]]


def kinds() -> dict[str, Kind]:
    """A fresh one of each, by the name of its dialect."""
    settings = {"default_generation_settings": {"n_ctx": CONTEXT}, "total_slots": 4}
    return {
        "openai": Kind(models("somebody"), OPENAI_ANSWERS),
        "vllm": Kind(models("vllm", max_model_len=CONTEXT), OPENAI_ANSWERS),
        "sglang": Kind(
            models("sglang", max_model_len=CONTEXT),
            {**OPENAI_ANSWERS, "/generate": sglang_answer},
        ),
        "tgi": Kind(
            {
                **models("m"),
                "/info": {"model_id": "m", "max_total_tokens": CONTEXT, "version": "3.0.0"},
            },
            {**OPENAI_ANSWERS, "/generate_stream": tgi_answer},
        ),
        "llamacpp": Kind(
            {**models("llamacpp", meta={"n_vocab": 1000}), "/props": settings},
            {**OPENAI_ANSWERS, "/completion": llamacpp_answer},
            server="llama.cpp",
        ),
        "tensorrt-llm": Kind(models("tensorrt_llm"), OPENAI_ANSWERS),
        "triton": Kind(
            {"/v2": {"name": "triton", "version": "2.50.0", "extensions": []}},
            {"/v2/models/ensemble/generate_stream": triton_answer},
        ),
        "mlc": Kind(models("MLC-LLM"), OPENAI_ANSWERS),
        "transformers": Kind(
            {**models("org"), "/openapi.json": {"paths": TRANSFORMERS_PATHS}},
            dict.fromkeys(OPENAI_ANSWERS, transformers_answer),
        ),
        "ollama": Kind(
            {
                "/v1/models": {"data": [{"id": "m:latest", "owned_by": "library"}]},
                "/api/tags": {"models": [{"name": "m:latest", "size": 1}]},
                "/api/version": {"version": "0.12.0"},
                "/api/ps": {"models": [{"name": "m:latest", "context_length": CONTEXT}]},
            },
            {**OPENAI_ANSWERS, "/api/generate": ollama_answer},
            content_type="application/x-ndjson",
        ),
    }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    kind: Kind

    def version_string(self) -> str:
        return self.kind.server

    def do_GET(self) -> None:
        page = self.kind.pages.get(self.path)
        status = 404 if page is None else 200
        self._whole(status, json.dumps(page if page is not None else {"detail": "Not Found"}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.kind.asked.append((self.path, body))
        self.kind.headers.append({name.lower(): value for name, value in self.headers.items()})
        if self.path not in self.kind.answers:
            self._whole(404, '{"detail": "Not Found"}')
            return
        self.send_response(200)
        self.send_header("content-type", self.kind.content_type)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for piece in [*self.kind.answers[self.path](body), b""]:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))

    def _whole(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *arguments: Any) -> None:
        pass


@contextmanager
def running(kind: Kind) -> Iterator[str]:
    """Its URL while it runs."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"kind": kind}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def tgi(text: str, special: bool = False, last: int | None = None) -> bytes:
    token = {"id": 5, "text": text, "special": special}
    details = {"finish_reason": "length", "generated_tokens": last, "input_length": 7}
    ends = {"generated_text": "all", "details": details} if last else {"generated_text": None}
    return sse({"token": token, **ends})[0]


def server_with(pages: Mapping[str, Any], **headers: str) -> ServerProbe:
    """The probe of a server with these pages; a text is a web page."""

    def answer(request: httpx.Request) -> httpx.Response:
        page = pages.get(request.url.path)
        if isinstance(page, str):
            return httpx.Response(200, html=page)
        return httpx.Response(200 if page is not None else 404, json=page, headers=headers)

    return ServerProbe("http://h", httpx.Client(transport=httpx.MockTransport(answer), timeout=1.0))
