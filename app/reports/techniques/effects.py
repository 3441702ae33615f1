"""The effect table of ``servetwin techniques``: signs first, then the figures behind them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

from servetwin.app.reports.table import table_lines, wrapped
from servetwin.app.reports.techniques.quality import (
    RatedEffect,
    on_front,
    quality_as_dict,
    quality_known,
    quality_lines,
    signed_cell,
)
from servetwin.app.scenario.files.technique_scenario import TechniqueScenario
from servetwin.app.words import asset_table
from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.techniques.effects import (
    DEAD_BAND,
    METRICS,
    MOST_REPLICATIONS,
    REPLICATIONS,
    Change,
    Effect,
    Laboratory,
)
from servetwin.sim.techniques.quality import Quality, quality_of
from servetwin.sim.techniques.registry import TECHNIQUES
from servetwin.sim.techniques.serving import PrefixCache
from servetwin.sim.techniques.technique import Experiment, Family, Technique
from servetwin.workloads.errors import PolicyError

HAS_IT = "already enabled on this server"
_PARTS = ("change", "low", "high", "sign")
EFFECT_WORDS: dict[str, dict[str, str]] = asset_table("words.yaml")["effects"]


def measure_effects(
    techniques: Sequence[Technique],
    scenario: TechniqueScenario,
    replications: int | None,
    seed: int,
) -> Iterator[Effect]:
    """Measure each technique under its own load, or all under the load of the scenario, if any.

    ``replications`` None: as many as it takes to be sure of the signs, within bounds.
    """
    laboratory = Laboratory(seed, replications or REPLICATIONS, replications or MOST_REPLICATIONS)
    for technique in techniques:
        experiment = scenario.experiment
        if not scenario.has_workload:
            experiment = technique.experiment or experiment
        try:
            base = scenario.base_of(technique)
        except PolicyError as error:
            yield Effect(technique, experiment, refused=str(error))
        else:
            yield laboratory.effect(technique, base, experiment)


def judge(
    effects: Iterable[Effect], scenario: TechniqueScenario, own: Mapping[str, Quality]
) -> list[RatedEffect]:
    """Return each effect with the quality of its technique: one's own, or a published one."""
    setup = scenario.setup
    return [
        RatedEffect(
            effect,
            quality_of(effect.technique, setup.deployment.model, own),
            _aside(effect, scenario),
        )
        for effect in effects
    ]


def _aside(effect: Effect, scenario: TechniqueScenario) -> str:
    """Return why the throughput of an effect is not compared with that of others."""
    technique, setup = effect.technique, scenario.setup
    if effect.refused is None and technique.off(setup) != setup:
        return HAS_IT if technique.is_on(setup) else "against its opposite"
    is_usual = scenario.has_workload or effect.experiment == scenario.experiment
    return "" if is_usual else "under another load"


def effect_lines(judged: Sequence[RatedEffect], scenario: TechniqueScenario) -> Iterator[str]:
    """Return the whole report, at most 100 columns wide."""
    shown = [one for one in judged if one.effect.refused is None]
    effects = [one.effect for one in shown]
    yield f"{scenario.setup.deployment.name}, {scenario.setup.policies.name}"
    yield from wrapped([scenario.experiment.describe()])
    yield ""
    heads = [words["head"] for words in EFFECT_WORDS.values()]
    signs = [
        [
            _label(one.effect, scenario),
            *(one.effect.of(metric).sign or "n/a" for metric in METRICS),
            signed_cell(one.quality),
        ]
        for one in shown
    ]
    yield from table_lines(["technique", *heads, "quality"], signs)
    yield ""
    yield f"+ better, - worse, 0 less than {DEAD_BAND:.0%}, ? unsure. Changes in %, 95 % interval:"
    yield ""
    changes = [
        [_label(effect, scenario), *(_number(effect.of(metric)) for metric in METRICS)]
        for effect in effects
    ]
    yield from table_lines(["technique", *heads], changes)
    yield ""
    yield from quality_lines(judged)
    yield ""
    yield from _replications_lines(effects)
    yield from asset_table("words.yaml")["effects_legend"].splitlines()
    yield from wrapped(_notes(judged, scenario))


def _notes(judged: Sequence[RatedEffect], scenario: TechniqueScenario) -> Iterator[str]:
    """Say what the rows rest on: what is on already, own loads, models, and what is refused."""
    effects = [one.effect for one in judged]
    shown = [effect for effect in effects if effect.refused is None]
    names = [e.technique.name for e in shown if e.technique.is_on(scenario.setup)]
    if names:
        yield f"already enabled here, so the row is its effect: {', '.join(names)}"
    for effect in shown:
        if effect.experiment != scenario.experiment:
            yield f"* {effect.technique.name}: {effect.experiment.describe()}"
    for effect in shown:
        if effect.models:
            before, after = map(_size, effect.models)
            yield f"{effect.technique.name}: {before} against {after}"
        if note := effect.technique.note(scenario.setup):
            yield f"note: {effect.technique.name}: {note}"
        if isinstance(effect.technique, PrefixCache) and not effect.experiment.shared_tokens:
            yield "prefix-cache cannot hit on this load: no two prompts share a prefix"
    for effect in effects:
        if effect.refused is not None:
            yield f"not applicable: {refusal(effect)}"


def refusal(effect: Effect) -> str:
    """Return which technique makes no sense here, and why."""
    name = f"{effect.technique.name}: "
    return f"{name}{(effect.refused or '').removeprefix(name)}"


def _replications_lines(shown: Sequence[Effect]) -> Iterator[str]:
    """Say how many draws the intervals rest on, and what an unsure sign means."""
    counts = sorted({effect.replications for effect in shown})
    if not counts:
        return
    draws = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    yield f"intervals over {draws} draws of load and engine, the same for both sides"
    if any(change.sign == "?" for effect in shown for change in effect.changes):
        yield "?: the interval includes 0; more --replications narrow it"


def effects_as_dict(judged: Sequence[RatedEffect], scenario: TechniqueScenario) -> dict[str, Any]:
    """Return the effects unrounded, for JSON."""
    fronts = on_front(judged)
    return {
        "deployment": scenario.setup.deployment.name,
        "policies": scenario.setup.policies.as_dict(),
        "dead_band": DEAD_BAND,
        "techniques": [
            {
                **_as_dict(one.effect),
                "note": one.effect.technique.note(scenario.setup),
                "quality": quality_as_dict(one.quality),
                "on_quality_front": front,
            }
            for one, front in zip(judged, fronts, strict=True)
        ],
    }


def catalogue() -> dict[str, Any]:
    """Return what is known of every technique, by name."""
    return {name: _about(technique) for name, technique in TECHNIQUES.items()}


def catalogue_lines(techniques: dict[str, Any]) -> list[str]:
    """Return techniques by family: name and parameters, formula, source."""
    lines = []
    for family in get_args(Family):
        members = ((name, about) for name, about in techniques.items() if about["family"] == family)
        lines += [family, *(line for member in members for line in _catalogue_entry(*member))]
    return lines


def _catalogue_entry(name: str, about: Mapping[str, Any]) -> list[str]:
    parameters = ", ".join(f"{key}={value}" for key, value in about["parameters"].items())
    price = "lossless" if about["lossless"] else f"changes answers, quality {about['quality']}"
    text = f"{about['formula']}. {about['source']}. {price}"
    indent, head = " " * 6, f"{name}{': ' if parameters else ''}{parameters}"
    return [*wrapped([f"  {head}"], indent, 98), *wrapped([f"{indent}{text}"], indent)]


def _about(technique: type[Technique]) -> dict[str, Any]:
    facts = ("family", "kind", "lossless", "formula", "source")
    about = {name: getattr(technique, name) for name in facts}
    parameters = {key: field.default for key, field in technique.model_fields.items()}
    return {**about, "quality": quality_known(technique), "parameters": parameters}


def _as_dict(effect: Effect) -> dict[str, Any]:
    technique = effect.technique
    experiment = effect.experiment
    return {
        "name": technique.name,
        **_about(type(technique)),
        "parameters": technique.model_dump(),
        "workload": {name: getattr(experiment, name) for name in Experiment.__match_args__},
        "replications": effect.replications,
        "refused": effect.refused,
        "models": [
            {"name": m.name, "params": m.params(), "active_params": m.active_params()}
            for m in effect.models
        ],
        "changes": {c.metric: {part: getattr(c, part) for part in _PARTS} for c in effect.changes},
    }


def _size(model: ModelShape) -> str:
    """Return the name of a model and its weights, with those of a token where they are fewer."""
    total, active = (f"{n / 1e9:.4g}e9" for n in (model.params(), model.active_params()))
    used = "" if total == active else f", {active} for a token"
    return f"{model.name} ({total} weights{used})"


def _label(effect: Effect, scenario: TechniqueScenario) -> str:
    return effect.technique.name + ("*" if effect.experiment != scenario.experiment else "")


def _number(change: Change) -> str:
    if change.change is None:
        return "-"
    if change.low is None or change.high is None:
        return _percent(change.change, "+")
    half_width = _percent((change.high - change.low) / 2)
    return f"{_percent(change.change, '+')}{f'±{half_width}' if float(half_width) else ''}"


def _percent(share: float, sign: str = "") -> str:
    return f"{100 * share:{sign}.{0 if abs(share) >= 1 else 1}f}"
