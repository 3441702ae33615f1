"""Options of the tables behind ``servetwin techniques``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Option

from servetwin.app.scenario.options.common import MOST_REPLICATIONS

Model = Annotated[
    str | None, Option(help="A shipped model, or a path: our JSON, or any config.json.")
]
_DEVICE = Option(help="A shipped device, or the path of one.")
Device = Annotated[str | None, _DEVICE]
WeightFormat = Annotated[
    str, Option("--format", help="Number format of the weights: bf16, fp8, int4 ...")
]
KVFormat = Annotated[str, Option(help="Number format of keys and values: bf16, fp8 ...")]


@dataclass(frozen=True, slots=True)
class EffectOptions:
    """Techniques to compare, and the server to compare them on."""

    scenario: Annotated[Path | None, Option()] = None
    """YAML: deployment, policies, workload."""
    only: Annotated[tuple[str, ...], Option(metavar="NAME:KEY=VALUE,...")] = ()
    """This technique; may be repeated."""
    replications: Annotated[int | None, Option(min=2, max=MOST_REPLICATIONS)] = None
    """Draws of load and engine behind the intervals; 5, to 20 while a sign is unsure."""
    quality: Annotated[tuple[str, ...], Option(metavar="NAME=METRIC:CHANGE%@SOURCE")] = ()
    """Your own quality of a technique, with its source; may be repeated."""


@dataclass(frozen=True, slots=True)
class IntensityOptions:
    """Products whose intensity is printed, and the unit."""

    model: Model = None
    rows: Annotated[str, Option(metavar="N,...")] = "1,2,4,8,128,512,4096"
    """Tokens computed at once, n."""
    context: Annotated[str | None, Option(metavar="N,...")] = None
    """Keys attended to, l; a token's position."""
    ffn_matrices: Annotated[int | None, Option()] = None
    """Matrices of an FFN: 2 plain, 3 gated."""
    element_bytes: Annotated[float | None, Option()] = None
    """Bytes of an element: print FLOP/byte, not FLOP/element."""
    hardware: Device = None


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """Models and device to size."""

    model: Annotated[tuple[str, ...], Option()] = ()
    """Only this model or path; may be repeated."""
    context: Annotated[int, Option()] = 4096
    """Tokens of a sequence."""
    form: WeightFormat = "bf16"
    kv_format: KVFormat = "bf16"
    hardware: Device = None
    step_rows: Annotated[int, Option()] = 2_048
    """Rows of the largest step: the token budget."""
    logit_rows: Annotated[int, Option()] = 256
    """Rows of it with logits: the sequences of a batch."""
    eager: Annotated[bool, Option("--eager")] = False
    """Kernels that fuse nothing and reuse no buffer, as the bundled engine's."""


@dataclass(frozen=True, slots=True)
class LatencyOptions:
    """Decode steps to time, and the device."""

    model: Model = None
    hardware: Annotated[str, _DEVICE] = "h100"
    batch: Annotated[str, Option(metavar="N,...")] = "1,64,256"
    """Sequences in a step."""
    kv_heads: Annotated[str | None, Option(metavar="N,...")] = None
    """KV heads to compare; else its own."""
    context: Annotated[int, Option()] = 1024
    """Tokens of every sequence."""
    form: WeightFormat = "bf16"
    kv_format: KVFormat = "bf16"
    tokens_per_day: Annotated[float | None, Option()] = None
    """Also print how many devices generate N tokens a day."""
