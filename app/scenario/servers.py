"""Servers under settings: policies and cluster are laid over them, techniques come last.

A preset of eager kernels comes before all of these.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from servetwin.app.scenario.settings import with_settings
from servetwin.policies.presets import find_preset
from servetwin.sim.experiments.scenario import Scenario

if TYPE_CHECKING:
    from servetwin.sim.techniques.registry import Toggles
    from servetwin.sim.techniques.setup import Setup

_Base = TypeVar("_Base", "Setup", Scenario)

# Settings of policies, and of the cluster.
Layer = tuple[Mapping[str, Any], Mapping[str, Any]]

# The setting that a setup does not have: it follows from weights and device unless it is given.
_MEMORY = "kv_tokens"

# The settings that follow from the layers of a model, where they keep different positions.
_OF_GROUPS = ("kv", "kv_groups", "block_tokens")


@dataclass(frozen=True, slots=True)
class ToggledServer:
    """A server of data sheets before its techniques; ``finish`` makes a scenario of a setup.

    ``remarks`` are notes on the server.
    """

    setup: "Setup"
    toggles: "Toggles"
    finish: "Callable[[Setup], Scenario]"
    remarks: tuple[str, ...] = ()

    def under(self, layers: tuple[Layer, ...]) -> Scenario:
        """Return the scenario with the layers over the server, and the techniques over them."""
        before = _laid_over(self.setup, layers, _MEMORY)
        after = self.toggles.over(before)
        scenario = self.finish(after)
        settings = {
            key: value
            for key, value in _given(layers).items()
            if key == _MEMORY or getattr(after.policies, key) == getattr(before.policies, key)
        }
        if scenario.policies.kv == "grouped":
            settings = {key: value for key, value in settings.items() if key not in _OF_GROUPS}
        return replace(scenario, policies=with_settings(scenario.policies, settings))

    def notes(self, layers: tuple[Layer, ...]) -> list[str]:
        """Return which techniques change nothing, and which settings they change."""
        settings = {key: value for key, value in _given(layers).items() if key != _MEMORY}
        toggled = self.toggles.notes(_laid_over(self.setup, layers, _MEMORY), settings)
        return [*self.remarks, *toggled]


@dataclass(frozen=True, slots=True)
class Servers:
    """Servers with settings laid over them, layer by layer."""

    own: Scenario | ToggledServer
    layers: tuple[Layer, ...] = ()
    imitated: str | None = None
    """The preset whose kernels they have."""

    def over(self, policies: Mapping[str, Any], cluster: Mapping[str, Any]) -> "Servers":
        """Return the servers with further settings, which win."""
        return replace(self, layers=(*self.layers, (policies, cluster)))

    def imitating(self, *presets: str | None) -> "Servers":
        """Return the servers with the kernels of the last preset that is named, if any is."""
        named = [name for name in presets if name is not None]
        return replace(self, imitated=named[-1]) if named else self

    def scenario(self) -> Scenario:
        """Return the scenario; raises ``PolicyError`` for what does not go together."""
        server = self._imitation()
        if isinstance(server, ToggledServer):
            eager = self.imitated if self._is_eager() else None
            return replace(server.under(self.layers), eager_preset=eager)
        return _laid_over(server, self.layers)

    def notes(self) -> list[str]:
        """Return what a user should know of techniques and presets."""
        server = self._imitation()
        if isinstance(server, ToggledServer):
            return server.notes(self.layers)
        if not self._is_eager():
            return []
        return [
            f"preset {self.imitated} runs eager kernels, which data sheets have (--model and "
            f"--gpu); step times stay those of {server.profile.name}"
        ]

    def _imitation(self) -> Scenario | ToggledServer:
        """Return the servers with their kernels."""
        server = self.own
        if isinstance(server, ToggledServer) and self._is_eager():
            from servetwin.sim.techniques.setup import with_eager_kernels

            return replace(server, setup=with_eager_kernels(server.setup))
        return server

    def _is_eager(self) -> bool:
        return self.imitated is not None and find_preset(self.imitated).kernels == "eager"


def _laid_over(base: _Base, layers: tuple[Layer, ...], left_out: str = "") -> _Base:
    """Return the base under the settings of the layers, but for one that is left out."""
    for policies, cluster in layers:
        settings = {key: value for key, value in policies.items() if key != left_out}
        base = replace(
            base,
            policies=with_settings(base.policies, settings),
            cluster=replace(base.cluster, **cluster),
        )
    return base


def _given(layers: tuple[Layer, ...]) -> dict[str, Any]:
    return {key: value for policies, _ in layers for key, value in policies.items()}
