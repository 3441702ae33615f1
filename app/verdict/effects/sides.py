"""The bundled engine without a technique and with it, as the simulator and the engine have it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from servetwin.app.serving.techniques import EngineSetup, plain_setup, translated
from servetwin.app.words import asset_table
from servetwin.engine.serve_options import ServeOptions
from servetwin.sim.catalogue.hardware import Hardware, Precision
from servetwin.sim.experiments.capacity import all_at_once
from servetwin.sim.records.metrics import figure
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.roofline.formats import BF16, Format
from servetwin.sim.techniques.registry import Toggles
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import Experiment, Technique
from servetwin.workloads.errors import LoadTestError, PolicyError
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace


def measured_hardware(threads: int = 1, ways: int = 1) -> Hardware:
    """Return the CPU that this process runs on, with ``threads`` threads of torch.

    Where ``ways`` processes share a model, their messages are measured too. It takes some seconds.
    """
    from servetwin.engine.machine_rates import link_rates, machine_rates

    rates, link = machine_rates(threads), dict[str, float]()
    if ways > 1:
        found = link_rates()
        link = {"link_latency_s": found.latency_s, "link_bytes_per_s": found.bytes_per_s}
    return Hardware.model_validate(
        {
            "link_bytes_per_s": rates.read_bytes_per_s,
            **link,
            "name": "this CPU",
            "peak_flops_per_s": rates.flops_per_s,
            "memory_bytes_per_s": rates.read_bytes_per_s,
            "memory_bytes": 64e9,
            "compute_units": threads,
            "host_link_bytes_per_s": rates.read_bytes_per_s,
            "kernel_launch_s": rates.operator_s,
            "source": f"measured here, with {threads} threads of torch",
        }
    )


# Divide the token counts of experiments, which are made for a GPU, by this on a CPU.
SMALLER = 4
_ALONE, _SATURATED = 12, 32


@dataclass(frozen=True, slots=True)
class EffectLoads:
    """``alone``: one request after the other on an idle server. ``saturated``: all at once."""

    alone: Trace
    saturated: Trace

    @classmethod
    def of(cls, trace: Trace) -> "EffectLoads":
        """Return both loads of the requests of a trace; few of them are sent alone."""
        requests = [replace(r, parent_ids=(), delay_s=None) for r in trace]
        return cls(_one_after_the_other(requests[:_ALONE]), all_at_once(Trace(tuple(requests), "")))

    @classmethod
    def of_experiment(cls, experiment: Experiment, seed: int, longest_tokens: int) -> "EffectLoads":
        """Return the loads of the experiment of a technique, with requests short enough for a CPU.

        No request is longer than ``longest_tokens``. Raises ``LoadTestError`` for an experiment
        that a load test cannot send.
        """
        if experiment.samples > 1:
            raise LoadTestError(
                f"it changes requests of which several answers are wanted ({experiment.samples} in "
                "its experiment), and a load test asks for one each"
            )
        smaller = replace(
            experiment,
            prompt_tokens=max(8, experiment.prompt_tokens // SMALLER),
            output_tokens=max(8, min(32, experiment.output_tokens // SMALLER)),
            shared_tokens=experiment.shared_tokens // SMALLER,
            longest_tokens=min(experiment.longest_tokens, longest_tokens) // 2,
            saturated=_SATURATED,
        )
        return cls.of(smaller.all_at_once(seed))


def _one_after_the_other(requests: Iterable[Request]) -> Trace:
    chain: list[Request] = []
    for request in requests:
        parents = (chain[-1].request_id,) if chain else ()
        delay_s = 0.0 if parents else None
        chain.append(replace(request, arrival_s=0.0, parent_ids=parents, delay_s=delay_s))
    return Trace(tuple(chain), "one after the other")


_FIGURES: Mapping[str, Mapping[str, str]] = asset_table("words.yaml")["verified_effects"]
# What is compared, and its name in tables.
# Alone: medians, since one pause of the machine moves the mean of few requests. Saturated: means.
# ``memory``: weights, and the most keys and values that the saturated requests hold.
METRICS = {name: words["label"] for name, words in _FIGURES.items()}

Figures = Mapping[str, float]


def figures_of(alone: Run, saturated: Run, memory_bytes: float) -> Figures:
    """Return the figures of ``METRICS`` that are defined."""
    runs = {"alone": alone.summary(), "saturated": saturated.summary()}
    of_runs = {name: of for name, of in _FIGURES.items() if "figure" in of}
    figures = {name: figure(runs[of["load"]], of["figure"]) for name, of in of_runs.items()}
    return {name: value for name, value in {**figures, "memory": memory_bytes}.items() if value}


def ratios(without: Figures, with_it: Figures) -> dict[str, float]:
    """Return with / without of every figure that both sides have."""
    both = without.keys() & with_it.keys()
    return {name: with_it[name] / without[name] for name in METRICS if name in both}


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison: what is simulated, and what the engine is started with."""

    setup: Setup
    options: ServeOptions


@dataclass(frozen=True, slots=True)
class Sides:
    """The engine without ``technique`` and with it."""

    technique: Technique
    without: Side
    with_it: Side

    @property
    def name(self) -> str:
        """The technique and the parameters that were given, as on a command line."""
        given = [key for key in type(self.technique).model_fields if self.technique.is_given(key)]
        values = (f"{key}={_text(getattr(self.technique, key))}" for key in given)
        return self.technique.name + (":" + ",".join(values) if given else "")

    @property
    def changes_step_times(self) -> bool:
        """Whether the technique changes more than the policies."""
        before, after = self.without.setup, self.with_it.setup
        return (before.deployment, before.acceptance) != (after.deployment, after.acceptance)


def sides_of(
    options: ServeOptions, technique: Technique, others: Toggles, hardware: Hardware
) -> Sides:
    """Return the engine of ``options`` and ``others`` on both sides of a technique.

    Raises ``CannotRun`` for a side that the engine does not run, and ``PolicyError`` for a
    technique that changes nothing here.
    """
    engine = EngineSetup.of(options)
    base = plain_setup(engine, hardware)
    setup = others.beside(technique).over(base)
    off, on = technique.sides(setup)
    if off == on:
        raise PolicyError(f"technique {technique.name}: it changes nothing of this engine")
    name, compute = technique.name, base.deployment.decode.compute
    without, with_it = (
        Side(_computed_in(side, compute), translated(name, engine, base, side).over(options))
        for side in (off, on)
    )
    return Sides(technique, without, with_it)


def _computed_in(setup: Setup, compute: Precision) -> Setup:
    """Return ``setup`` whose weight-only formats multiply in ``compute``, the engine's precision.

    Formulas say bf16 there, that of their other side: such a format changes bytes, not products.
    """

    def same_products(form: Format) -> Format:
        is_weight_only = form.activation_bits >= BF16.activation_bits
        return replace(form, compute=compute) if is_weight_only else form

    deployment = setup.deployment
    prefill, decode = same_products(deployment.prefill), same_products(deployment.decode)
    return setup.with_deployment(prefill=prefill, decode=decode)


def _text(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
