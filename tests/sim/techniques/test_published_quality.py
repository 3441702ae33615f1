"""The file of published qualities: every figure has its source and a model of known size."""

import pytest

from servetwin.sim.techniques.quality import published_quality
from servetwin.sim.techniques.registry import find_technique


def test_every_series_is_of_a_technique_with_parameters_that_it_has() -> None:
    for series in published_quality().series:
        technique = find_technique(series.technique)
        assert technique.name == series.name
        assert not technique.lossless


def test_every_source_is_used_and_dated() -> None:
    published = published_quality()
    assert {series.source for series in published.series} == set(published.sources)
    assert {name for series in published.series for name in series.models} == set(published.models)
    assert all(2018 <= int(source.date[:4]) <= 2026 for source in published.sources.values())


def test_models_of_the_catalogue_have_the_size_of_the_catalogue() -> None:
    from servetwin.sim.catalogue.catalogue import find_model
    from servetwin.sim.catalogue.shipped import shipped_models

    shared = {n: size for n, size in published_quality().models.items() if n in shipped_models()}
    assert len(shared) >= 6
    for name, size in shared.items():
        assert size == pytest.approx(find_model(name).params() / 1e9, abs=0.006)


@pytest.mark.parametrize("name", ["awq", "gptq"])
def test_more_bits_cost_less_perplexity_in_one_paper(name: str) -> None:
    by_bits = {s.parameters["bits"]: s.models for s in published_quality().series if s.name == name}
    assert set(by_bits) == {"3", "4"}
    for model, (before, after) in by_bits["4"].items():
        assert by_bits["3"][model][0] == before
        assert before < after < by_bits["3"][model][1]


@pytest.mark.parametrize("model", ["llama-3-8b", "llama-2-70b"])
@pytest.mark.parametrize(
    "scheme",
    [("q8_0", "q6_k", "q5_k", "q4_k", "q3_k", "q2_k"), ("q8_0", "q5_0", "q4_0"),
     ("iq4_xs", "iq3_s", "iq3_xxs", "iq2_s", "iq2_xs", "iq2_xxs", "iq1_m", "iq1_s")],
)  # fmt: skip
def test_more_bits_cost_less_perplexity_in_one_scheme_of_blocks(
    model: str, scheme: tuple[str, ...]
) -> None:
    after = {
        s.parameters["format"]: s.models[model][1]
        for s in published_quality().series
        if s.name == "gguf" and model in s.models
    }
    figures = [after[name] for name in scheme if name in after]
    assert figures == sorted(figures)
    assert model != "llama-3-8b" or len(figures) == len(scheme)
