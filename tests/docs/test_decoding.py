"""The page of decoding shows what the model says."""

import re

from servetwin.sim.step_times.acceptance import Chain, StoppedChain
from servetwin.sim.techniques.decoding import EarlyExitDecoding
from servetwin.sim.techniques.drafting import SpeculativeDecoding, TreeSpeculation
from tests.support.decoding_techniques import TECHNIQUES, base, gain, ideal
from tests.support.formulas.speculation import best_drafts, plain_step_s
from tests.support.paths import ROOT

PAGE = (ROOT / "docs/techniques/decoding.md").read_text()


# The page
def rows_of(heading: str) -> list[list[str]]:
    """Cells of the table whose first column is so headed."""
    table = re.search(rf"^\| {re.escape(heading)} .*\n\|[-| ]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert table
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[1].splitlines()]


def test_every_technique_has_its_section_with_its_parameters() -> None:
    for technique in TECHNIQUES:
        section = re.search(rf"^## {technique.name}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.M)
        assert section
        assert [p for p in type(technique).model_fields if f"`{p}`" not in PAGE] == []


def test_the_gains_on_the_page_are_those_of_the_model() -> None:
    for sequences, *gains in rows_of("sequences"):
        expected = [
            gain(technique, base(), int(sequences), context_tokens)
            for technique in (SpeculativeDecoding(), TreeSpeculation())
            for context_tokens in (128, 2000)
        ]
        assert gains == [f"{value:.2f}" for value in expected]


def test_the_numbers_of_drafts_on_the_page_are_the_best() -> None:
    for alpha, *best in rows_of("α"):
        assert best == [str(best_drafts(float(alpha), share)) for share in (0.01, 0.05, 0.1, 0.2)]


def test_the_thresholds_on_the_page_are_those_of_the_law() -> None:
    for least, *means in rows_of("c, at"):
        stops = float(least) > 0
        law = StoppedChain(0.7, 4, float(least)) if stops else Chain(0.7, 4)
        drafts = sum(law.step_shares) if stops else 4
        assert means == [f"{law.mean_tokens_per_pass():.4f}", f"{drafts:.4f}"]


def test_the_exits_on_the_page_are_those_of_the_model() -> None:
    technique = EarlyExitDecoding()
    with_it = technique.apply(base()).deployment
    for sequences, read, gained in rows_of("decodes"):
        count = int(sequences)
        ratio = plain_step_s(ideal(), count, 128) / plain_step_s(with_it, count, 128)
        assert (read, gained) == (f"{technique.exits.read_depth(count):.3f}", f"{ratio:.2f}")
