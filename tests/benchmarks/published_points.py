"""Published measurements of deployments (``../shared/points``): a row as a server and a load.

Traps of the file: the same figures under two GPUs or models are copies, and are not scored;
lengths of ShareGPT are known as means; drafts cannot be expressed, for no source says how many are
accepted (nor, on a page with and without them, which runs had any).
"""

import csv
from collections import Counter
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from pathlib import Path

import numpy as np

from servetwin.app.scenario.deployments import as_served
from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.catalogue.links import find_link
from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.catalogue.servers import ServerSettings, read_server
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.efficiency import Efficiency
from servetwin.sim.techniques.setup import Setup
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace

METRICS = ("duration", "TTFT", "TPOT")
BACKENDS = {"vLLM": "vllm", "SGLang": "sglang", "TensorRT-LLM": "trtllm"}
ENDINGS = {"fp8": "-FP8", "int4 (AWQ)": "-AWQ", "fp4": "-NVFP4"}
"""Of a model's name, by precision; another precision is that of the checkpoint."""
LINKS = {"RTX 4090": "pcie-4-host"}
"""Links that data sheets do not have: a GPU that cannot reach another one's memory."""
SPREAD = 1.0
"""The standard deviation of the logarithm of ShareGPT's lengths, which the benchmark cuts off."""
LONGEST = 1024


class NotExpressed(Exception):
    """A row that no deployment stands for, with the reason."""


@dataclass(frozen=True)
class Point:
    """One measured run; ``measured`` has seconds by metric."""

    source: str
    model: str
    precision: str
    gpu: str
    layout: tuple[int, int, int, int]
    engine: str
    version: str
    options: str
    load: str
    prompts: int
    prompt_tokens: float
    output_tokens: float
    is_fixed: bool
    measured: tuple[tuple[str, float], ...]
    copied: bool = False

    @property
    def publisher(self) -> str:
        """Who published it."""
        return self.source.removeprefix("github ").partition("/")[0]

    @property
    def family(self) -> str:
        """Its kind of model and its size, whatever the weights: ``Attention 64 x 5,120``."""
        model = find_model(self.model)
        kinds = {type(group.ffn).__name__ for group in model.layers}
        return f"{'experts' if 'Experts' in kinds else 'dense'} {model.layer_count} x {model.width}"

    def trace(self) -> Trace:
        """Return its load: as many requests, of lengths with its means."""
        rng = np.random.default_rng(0)
        prompts, outputs = (
            _lengths(mean, self.prompts, self.is_fixed, rng)
            for mean in (self.prompt_tokens, self.output_tokens)
        )
        arrivals = np.zeros(self.prompts)
        users = self.prompts
        if self.load.startswith("Poisson rate "):
            rate = float(self.load.removeprefix("Poisson rate ").removesuffix("/s"))
            arrivals = np.cumsum(rng.exponential(1 / rate, self.prompts))
        elif self.load.startswith("max concurrency "):
            users = int(self.load.rpartition(" ")[2])
        elif self.load != "all at once":
            raise NotExpressed(f"load {self.load!r}")
        requests = []
        free = [(0, "") for _ in range(users)]
        for place, (prompt, output) in enumerate(zip(prompts, outputs, strict=True)):
            done, before = heappop(free)
            heappush(free, (done + int(output), f"{place}"))
            requests.append(
                Request(
                    f"{place}", float(arrivals[place]), int(prompt), int(output),
                    parent_ids=(before,) if before else (), delay_s=0.0 if before else None,
                )
            )  # fmt: skip
        return Trace(tuple(requests), "published")

    def settings(self) -> ServerSettings:
        """Return its server with the options of its row."""
        if "spec-dec" in self.options:
            page = "/".join(self.source.removesuffix(".md").split("/")[-2:])
            raise NotExpressed(f"drafts whose acceptance is not published: {page}")
        backend = BACKENDS[self.engine]
        tp, pp, dp, ep = self.layout
        line = {
            "vllm": f"vllm serve m -tp {tp} -pp {pp} -dp {dp}",
            "sglang": f"sglang serve --model m --tp {tp} --pp {pp} --dp {dp} --ep {ep}",
            "trtllm": f"trtllm-serve m --tp {tp} --pp {pp} --ep {ep}",
        }[backend]
        line += " --enable-expert-parallel" if backend == "vllm" and ep > 1 else ""
        flags = self.options if self.options.startswith("-") else ""
        return replace(read_server(f"{line} {flags}"), version=self.version or None)

    def shape(self) -> ModelShape:
        """Return its model with the formats of its weights."""
        owner = "nvidia/" if self.engine == "TensorRT-LLM" else ""
        return find_model(f"{owner}{self.model}{ENDINGS.get(self.precision, '')}")

    def scenario(self, efficiency: Efficiency) -> Scenario:
        """Return its server from data sheets at an efficiency, as ``--server`` makes it."""
        server = self.settings()
        if self._has_small_kv(server):
            server = replace(server, formats={**server.formats, "kv": "fp8"})
        setup = Setup.of(Deployment(self.shape(), find_hardware(self.gpu)))
        setup = as_served(setup, server, None).with_policies(prefix_cache=False)
        link = find_link(LINKS[self.gpu]) if self.gpu in LINKS else None
        parallel = replace(setup.deployment.parallel, link=link)
        return setup.with_deployment(efficiency=efficiency, parallel=parallel).scenario()

    def _has_small_kv(self, server: ServerSettings) -> bool:
        """Return whether keys and values are fp8, as NVIDIA publishes weights of few bits."""
        is_small = self.engine == "TensorRT-LLM" and self.precision in ("fp8", "fp4")
        return is_small or server.formats.get("kv") == "fp8"

    def simulated(self, scenario: Scenario) -> dict[str, float]:
        """Return seconds by metric of its load on a server."""
        requests = run_once(self.trace(), scenario).requests
        if not (requests["status"] == "finished").all():
            raise NotExpressed("some requests are longer than the KV memory")
        tokens = requests["output_tokens"]
        decoding = (requests["last_token_s"] - requests["first_token_s"])[tokens > 1]
        return {
            "duration": float(requests["last_token_s"].max() - requests["sent_s"].min()),
            "TTFT": float((requests["first_token_s"] - requests["sent_s"]).mean()),
            "TPOT": float((decoding / (tokens[tokens > 1] - 1)).mean()),
        }


def _lengths(
    mean: float, count: int, is_fixed: bool, rng: np.random.Generator
) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Return lengths of a mean: nearly equal ones, or such as those of ShareGPT."""
    if is_fixed or mean > LONGEST / 2:
        lengths = np.full(count, mean)
    else:
        lengths = np.exp(rng.normal(0.0, SPREAD, count))
        for _ in range(20):
            lengths = np.clip(lengths * mean / lengths.mean(), 4, LONGEST)
    whole = np.floor(lengths + rng.uniform(0, 1, count))
    return np.maximum(2, whole).astype(np.int64)


def read_points(path: Path) -> list[Point]:
    """Return the measured runs of the file, each with all of its values."""
    groups: dict[tuple[str, ...], list[dict[str, float]]] = {}
    with path.open() as file:
        for row in csv.DictReader(file):
            key = tuple(v for k, v in row.items() if k not in ("metric", "value", "unit"))
            runs = groups.setdefault(key, [{}])
            if row["metric"] in runs[-1]:  # another run of the same description
                runs.append({})
            runs[-1][row["metric"]] = float(row["value"])
    points = [_point(key, values) for key, runs in groups.items() for values in runs]
    times = Counter(point.measured for point in points if len(point.measured) > 1)
    return [replace(point, copied=times[point.measured] > 1) for point in points]


def _point(key: tuple[str, ...], values: dict[str, float]) -> Point:
    (source, _, _, model, precision, gpu, _, tp, pp, dp, ep, engine, version, options, load,
     prompts, prompt_tokens, output_tokens, exactness) = key  # fmt: skip
    number, output = int(prompts), float(output_tokens)
    measured = {"duration": number * output / values["output throughput"]}
    measured |= {m: 1e-3 * values[f"mean {m}"] for m in METRICS[1:] if f"mean {m}" in values}
    width = int(tp)
    return Point(
        source, model, precision, gpu,
        (width, int(pp), int(dp), width if ep == "tp" else int(ep or 1)),
        engine, version, options, load, number, float(prompt_tokens), output,
        "fixed" in exactness or "exact lengths" in exactness, tuple(measured.items()),
    )  # fmt: skip
