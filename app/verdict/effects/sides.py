"""The bundled engine without a technique and with it, as the simulator and the engine have it."""

from dataclasses import dataclass, replace

from servetwin.app.serving.techniques import EngineSetup, plain_setup, translated
from servetwin.engine.serve_options import ServeOptions
from servetwin.sim.catalogue.hardware import Hardware, Precision
from servetwin.sim.step_times.roofline.formats import BF16, Format
from servetwin.sim.techniques.registry import Toggles
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import Technique
from servetwin.workloads.errors import PolicyError


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
    own = base.deployment.decode.compute
    without, with_it = (
        Side(_computed_in(side, own), translated(technique.name, engine, base, side).over(options))
        for side in (off, on)
    )
    return Sides(technique, without, with_it)


def _computed_in(setup: Setup, own: Precision) -> Setup:
    """Return ``setup`` with the products of weight-only formats in the engine's ``own`` precision.

    Formulas say bf16 there, that of their other side: such a format changes bytes, not products.
    """

    def same_products(form: Format) -> Format:
        return replace(form, compute=own) if form.activation_bits >= BF16.activation_bits else form

    deployment = setup.deployment
    prefill, decode = same_products(deployment.prefill), same_products(deployment.decode)
    return setup.with_deployment(prefill=prefill, decode=decode)


def _text(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
