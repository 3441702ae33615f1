"""A server of data sheets, on which techniques are tried: a model and a device."""

from dataclasses import dataclass, replace
from typing import Any

from servetwin.app.dashboard.scenario.allowed_choices import (
    offered_technique,
    places,
    require_all_offered,
)
from servetwin.app.reports.run_words import made_by, server_name
from servetwin.app.scenario.files.scenario_file import ScenarioFile
from servetwin.app.scenario.options.deployment import Deployment, technique_name
from servetwin.app.scenario.servers import ToggledServer
from servetwin.sim.techniques.setup import Setup


@dataclass(frozen=True, slots=True)
class DataSheetServer:
    """A deployment by its data sheet; ``techniques`` are texts (``tensor-parallel:ways=2``).

    Of the techniques that it has by itself, it lacks ``without``.
    """

    deployment: Deployment

    @classmethod
    def of(cls, file: ScenarioFile) -> "DataSheetServer":
        """Return the server of a scenario; of a profile, the model and the device that it is of."""
        deployment = file.deployment
        for name in deployment.profile:
            model, gpu = places()[name]
            deployment = Deployment(model=model, gpu=gpu)
        return cls(replace(deployment, times="sheet"))

    @property
    def techniques(self) -> tuple[str, ...]:
        """The techniques that were turned on."""
        return self.deployment.techniques

    @property
    def without(self) -> tuple[str, ...]:
        """The techniques that were turned off."""
        return self.deployment.without

    def source(self) -> str:
        """Return what a chart of the server rests on, for its picture."""
        return f"Computed from data sheets: {server_name(self.deployment.record())}; {made_by()}"

    def setup(self) -> Setup:
        """Build the server; raises ``ServetwinError`` where parts do not fit, or name a file."""
        require_all_offered(self.in_scenario(ScenarioFile()))
        server = self.deployment.servers().own
        assert isinstance(server, ToggledServer)
        return server.toggles.over(server.setup)

    def text_of(self, name: str) -> str | None:
        """Return a technique that was chosen, with its parameters; None where it was not."""
        return next((text for text in self.techniques if technique_name(text) == name), None)

    def has_by_itself(self, name: str) -> bool:
        """Return whether the server has a technique that was not chosen."""
        return offered_technique(name).is_on(self.untouched(name).setup())

    def lacks(self, name: str) -> bool:
        """Return whether the technique was turned off."""
        return any(technique_name(text) == name for text in self.without)

    def with_technique(self, text: str) -> "DataSheetServer":
        """Return the same with the technique on, after the others, with these parameters.

        Raises ``PolicyError`` for an unknown technique or parameter.
        """
        offered_technique(text)
        others = self.untouched(technique_name(text))
        return others._with(techniques=(*others.techniques, text))

    def without_technique(self, text: str) -> "DataSheetServer":
        """Return the same with the technique off; raise as ``with_technique`` does."""
        name = offered_technique(text).name
        others = self.untouched(name)
        if not self.has_by_itself(name):
            return others
        return others._with(without=(*others.without, text))

    def untouched(self, name: str) -> "DataSheetServer":
        """Return the same with the technique neither turned on nor off."""
        on, off = (
            tuple(text for text in texts if technique_name(text) != name)
            for texts in (self.techniques, self.without)
        )
        return self._with(techniques=on, without=off)

    def in_scenario(self, file: ScenarioFile) -> ScenarioFile:
        """Return ``file`` with this server; all else as it was."""
        return file.model_copy(update={"deployment": self.deployment})

    def _with(self, **toggles: Any) -> "DataSheetServer":
        return DataSheetServer(replace(self.deployment, **toggles))
