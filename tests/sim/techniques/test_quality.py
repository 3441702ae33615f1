"""Quality of techniques: kept, published, of the nearest model, one's own, or not known."""

import pytest

from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.techniques.quality import (
    EXAMPLE,
    KEPT,
    PublishedQuality,
    Quality,
    on_quality_front,
    parse_own_qualities,
    quality_of,
)
from servetwin.sim.techniques.registry import TECHNIQUES, find_technique
from servetwin.sim.techniques.technique import Technique
from servetwin.workloads.errors import PolicyError

LLAMA = find_model("llama-2-7b")
AWQ, CACHE = find_technique("awq"), find_technique("kv-cache")


@pytest.mark.parametrize("name", TECHNIQUES)
def test_lossless_techniques_and_no_others_keep_quality_by_definition(name: str) -> None:
    technique = TECHNIQUES[name]()
    assert (quality_of(technique, LLAMA) == KEPT) == technique.lossless


def test_the_papers_figures_of_the_same_model() -> None:
    found = quality_of(AWQ, LLAMA)
    assert found is not None
    assert (found.basis, found.model, found.before, found.after) == (
        "this model", "llama-2-7b", 5.47, 5.60
    )  # fmt: skip
    assert found.change == found.loss == pytest.approx(0.13 / 5.47)
    assert found.source == "AWQ (Lin 2023), table 4 (2023-06)"


def test_parameters_that_were_not_measured_have_no_figure() -> None:
    three = quality_of(find_technique("awq:bits=3"), LLAMA)
    assert three is not None
    assert three.after == 6.24
    assert quality_of(find_technique("awq:bits=2"), LLAMA) is None
    assert quality_of(find_technique("awq:group=64"), LLAMA) is None
    assert quality_of(find_technique("cascade"), LLAMA) is None


@pytest.mark.parametrize(
    ("model", "nearest"),
    [("mistral-7b", "llama-2-7b"), ("opt-30b", "llama-2-70b"), ("llama-1b", "llama-2-7b"),
     ("qwen3-14b", "llama-2-13b"), ("gpt-3-175b", "llama-2-70b")],
)  # fmt: skip
def test_other_models_have_the_unchanged_figure_of_the_nearest_in_size(
    model: str, nearest: str
) -> None:
    found, of_nearest = (quality_of(AWQ, find_model(name)) for name in (model, nearest))
    assert found is not None
    assert of_nearest is not None
    assert (found.basis, found.model) == ("nearest model", nearest)
    assert found.change == of_nearest.change


def test_the_same_model_comes_before_a_nearer_size_and_the_first_series_before_the_second() -> None:
    source = {"title": "A", "date": "2024", "where": "x"}
    series = {"technique": "awq", "method": "", "metric": "perplexity", "task": "t", "source": "a"}
    published = PublishedQuality.model_validate(
        {
            "sources": {"a": source},
            "models": {"llama-2-7b": 100, "other": LLAMA.params() / 1e9},
            "series": [
                {**series, "models": {"other": [1, 2]}},
                {**series, "models": {"llama-2-7b": [1, 3]}},
                {**series, "models": {"llama-2-7b": [1, 4], "other": [1, 5]}},
            ],
        }
    )
    own, others = quality_of(AWQ, LLAMA, None, published), quality_of(
        AWQ, find_model("mistral-7b"), None, published
    )  # fmt: skip
    assert own is not None
    assert others is not None
    assert (own.after, others.after) == (3, 2)


def test_lower_accuracy_and_higher_perplexity_are_losses() -> None:
    assert Quality("own value", -0.02, "x", "accuracy").loss == 0.02
    assert Quality("own value", 0.02, "x", "perplexity").loss == 0.02
    assert KEPT.loss == 0


def test_an_own_value_comes_before_a_published_one_and_has_its_source() -> None:
    own = parse_own_qualities([EXAMPLE], [AWQ, CACHE])
    found = quality_of(AWQ, LLAMA, own)
    assert found is not None
    assert (found.basis, found.metric, found.source) == (
        "own value", "accuracy", "own evaluation, 2026-11"
    )  # fmt: skip
    assert found.loss == pytest.approx(0.013)
    assert quality_of(CACHE, LLAMA, own) == KEPT


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("awq=accuracy:-1.3%", "awq: a quality without a source; write NAME=METRIC:CHANGE%@SOURCE"),
        ("awq=accuracy:-1.3%@ ", "awq: a quality without a source; write"),
        ("awq=-1.3%", "awq: '-1.3%' is not METRIC:CHANGE%@SOURCE; write"),
        ("awq", "'awq' is not NAME=METRIC:CHANGE%@SOURCE"),
        ("awq=acuracy:-1%@x", "awq: unknown metric 'acuracy'; did you mean 'accuracy'?"),
        ("awq=accuracy:few%@x", "awq: a change of few % is not possible; it is above -100"),
        ("awq=accuracy:nan%@x", "awq: a change of nan % is not possible"),
        ("awq=accuracy:-100%@x", "awq: a change of -100 % is not possible; it is above -100 and"),
        ("awq=perplexity:1e300%@x", "awq: a change of 1e300 % is not possible; it is above -100"),
        ("aqw=accuracy:-1%@x", "'aqw' is not among the techniques tried; did you mean 'awq'?"),
        ("kv-cache=accuracy:-1%@x", "kv-cache keeps the answers: its quality is 0 by definition"),
    ],
)
def test_own_values_that_are_wrong_say_where_and_what_is_right(text: str, message: str) -> None:
    with pytest.raises(PolicyError) as error:
        parse_own_qualities([text], [AWQ, CACHE])
    assert str(error.value).startswith(f"--quality: {message}")


def test_a_technique_has_one_own_value() -> None:
    with pytest.raises(PolicyError, match=r"^--quality: awq has two values; give one$"):
        parse_own_qualities([EXAMPLE, EXAMPLE], [AWQ, CACHE])


def points(*given: tuple[str | None, float, float]) -> list[tuple[Quality, float]]:
    """Metric (None: kept), change and relative throughput."""
    return [
        (KEPT if metric is None else Quality("own value", change, "x", metric), gain)  # type: ignore[arg-type]  # of a table
        for metric, change, gain in given
    ]


def test_the_front_has_what_no_other_beats() -> None:
    given = points(
        (None, 0, 0.2),  # kept, the most of those: on it
        (None, 0, 0.1),  # less throughput for the same: not
        ("perplexity", 0.05, 1.0),  # on it
        ("perplexity", 0.10, 0.9),  # more loss for less: not
        ("perplexity", 0.10, 1.5),  # on it
        ("accuracy", -0.05, 0.5),  # the only one of its metric above the kept: on it
        ("accuracy", -0.05, 0.15),  # beaten by the kept one
        ("accuracy", +0.01, 0.2),  # a gain is no loss: as good as the kept one
    )
    assert on_quality_front(given) == [True, False, True, False, True, True, False, True]
    assert on_quality_front([]) == []


def test_a_technique_of_ones_own_is_not_known_until_it_has_a_value() -> None:
    class Mine(Technique):
        """Mine."""

        name = "mine"
        family = "numbers"
        formula = source = ""

        def apply(self, setup):  # type: ignore[no-untyped-def]  # never called
            return setup

    assert quality_of(Mine(), LLAMA) is None
    own = parse_own_qualities(["mine=perplexity:2%@me"], [Mine()])
    assert quality_of(Mine(), LLAMA, own) == own["mine"]
