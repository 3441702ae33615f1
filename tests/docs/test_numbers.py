"""The page of number formats shows what the formats do."""

import re

import pytest

from sim.step_times.roofline.formats import (
    FORMATS,
)
from sim.techniques.compression import (
    SemiStructuredSparsity,
)
from sim.techniques.numbers import (
    KVQuantisation,
    PhaseFormats,
)
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique
from tests.support.number_techniques import (
    LLAMA_ON_A100,
    PAGE,
    QUANTISATIONS,
    TECHNIQUES,
    decodes,
    name_of,
    prompt,
    rows,
    seconds,
)


def test_the_page_has_every_format() -> None:
    expected = [
        [f"`{f.name}`", f"{f.weight_bytes:.4g}", f.compute, f"{f.compute_share:.4g}",
         f"{f.memory_share:.2g}", str(f.activation_bits), f.calibration, f"{f.quality_bits:g}"]
        for f in FORMATS.values()
    ]  # fmt: skip
    assert rows("format") == expected


SHAPES = [
    *(decodes(count, 512) for count in (1, 16, 128)),
    *(prompt(tokens) for tokens in (32, 128, 512, 2048)),
]


def test_the_picture_of_the_page_is_what_the_formats_do() -> None:
    drawn = {code: cells for code, *cells in rows("time / bf16")}
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


@pytest.mark.parametrize("technique", TECHNIQUES, ids=name_of)
def test_every_technique_has_its_section(technique: Technique) -> None:
    assert re.search(rf"^## {re.escape(technique.name)}$", PAGE, re.MULTILINE)
