"""The notes' effect table: a sign that differs here has a reason, and no other sign has one."""

import pytest

from servetwin.app.scenario.files.technique_scenario import read_technique_scenario
from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.techniques.effects import METRICS, REPLICATIONS, Effect
from servetwin.sim.techniques.quality import quality_of
from tests.support.published.effects import EFFECTS, MEASURED, PublishedEffect, measured_effects
from tests.support.published.errors import ERRORS
from tests.support.published.tables import TABLES

pytestmark = pytest.mark.slow
Found = dict[str, tuple[PublishedEffect, Effect]]


@pytest.fixture(scope="module")
def found() -> Found:
    tried = read_technique_scenario(None)
    rows = measured_effects(tried.setup, tried.experiment, REPLICATIONS, 0)
    return {published.row: (published, effect) for published, effect in rows}


@pytest.mark.parametrize("row", [published.row for published in EFFECTS])
def test_a_sign_is_that_of_the_notes_or_differs_for_a_reason(found: Found, row: str) -> None:
    published, effect = found[row]
    for (aspect, measured), sign in zip(MEASURED.items(), published.signs, strict=True):
        signs = {effect.of(name).sign for name in measured.values()}
        if aspect == "quality":
            known = quality_of(effect.technique, find_model("llama-2-7b"))
            signs = {"0" if known is not None and known.loss <= 0 else "-"}
        assert (signs == {sign}) == (aspect not in published.why), (aspect, signs)


def test_every_sign_of_the_notes_is_found_under_some_condition(found: Found) -> None:
    """Of their five rows; the other two rows are of a part of a technique."""
    whole = [published for published in EFFECTS if "the " not in published.row]
    assert len(whole) == 5
    for published in whole:
        _, effect = found[published.row]
        for measured, sign in zip(list(MEASURED.values())[:3], published.signs, strict=False):
            assert sign in {effect.of(name).sign for name in measured.values()}, published.row


def test_all_but_memory_is_in_the_table() -> None:
    names = [name for measured in MEASURED.values() for name in measured.values()]
    assert sorted([*names, "memory"]) == sorted(METRICS)


def test_every_known_error_of_the_notes_is_a_reason_somewhere() -> None:
    tables = [table for name, table in TABLES.items() if name != "over_transformers"]
    of_tables = {claim.why for table in tables for claim in table()}
    of_effects = {why for published in EFFECTS for why in published.why.values()}
    assert set(ERRORS) <= of_tables | of_effects
