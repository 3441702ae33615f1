"""The number formats in the evidence are those of the code."""

import re

from servetwin.sim.step_times.roofline.formats import (
    BLOCK_FORMATS,
    FORMATS,
    KV_FORMATS,
    most_sqnr_db,
    sqnr_db,
)
from servetwin.sim.techniques.compression import SemiStructuredSparsity
from servetwin.sim.techniques.quantisation import KVQuantisation, PhaseFormats
from servetwin.sim.techniques.setup import Setup
from tests.support.evidence import rows
from tests.support.number_techniques import LLAMA_ON_A100, QUANTISATIONS, decodes, prompt, seconds


def test_there_is_every_format() -> None:
    expected = [
        [f"`{f.name}`", f"{f.weight_bytes:.4g}", f.compute, f"{f.compute_share:.4g}",
         f"{f.memory_share:.2g}", str(f.activation_bits), f.activation_scales, f.calibration,
         f"{sqnr_db(f.grid):.1f}" if f.grid else "-"]
        for name, f in FORMATS.items() if name not in BLOCK_FORMATS
    ]  # fmt: skip
    assert rows("formats") == expected


def test_there_is_every_block_of_gguf() -> None:
    expected = [
        [f"`{name}`", re.search(r"GGUF: (.*) weights", f.source)[1].replace(" per ", " / "),  # type: ignore[index]  # all have it
         f"{8 * f.weight_bytes:g}", f"{sqnr_db(f.grid):.1f}" if f.grid else "-",
         f"{most_sqnr_db(8 * f.weight_bytes):.1f}"]
        for name, f in FORMATS.items() if name in BLOCK_FORMATS
    ]  # fmt: skip
    assert rows("gguf-blocks") == expected


def test_there_is_every_format_of_keys_and_values() -> None:
    assert [row[:2] for row in rows("kv-formats")] == [
        [f"`{n}`", f"{s:g}"] for n, s in KV_FORMATS.items()
    ]


SHAPES = [
    *(decodes(count, 512) for count in (1, 16, 128)),
    *(prompt(tokens) for tokens in (32, 128, 512, 2048)),
]


def test_steps_by_format_are_what_the_formats_do() -> None:
    drawn = {code: cells for code, *cells in rows("format-steps")}
    setup = Setup.of(LLAMA_ON_A100)
    expected = {
        f"`{technique.name}`": [
            f"{seconds(technique.apply(setup).deployment, s) / seconds(LLAMA_ON_A100, s):.2f}"
            for s in SHAPES
        ]
        for technique in (*QUANTISATIONS[:2], *QUANTISATIONS[3:5], PhaseFormats(),
                          SemiStructuredSparsity(), KVQuantisation())
    }  # fmt: skip
    assert drawn == expected
