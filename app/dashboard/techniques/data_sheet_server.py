"""A server of data sheets, on which techniques are tried: a model and a device."""

from dataclasses import asdict, dataclass, replace

from servetwin.app.dashboard.scenario.allowed_choices import offered_technique, require_all_offered
from servetwin.app.reports.run_words import made_by, server_name
from servetwin.app.scenario.files.scenario_file import ScenarioFile, Server
from servetwin.app.scenario.options.server import technique_name
from servetwin.sim.techniques.registry import build_setup, parse_efficiency
from servetwin.sim.techniques.setup import Setup

MODEL, HARDWARE = "llama-3-8b", "h100"


@dataclass(frozen=True, slots=True)
class DataSheetServer:
    """A server made of data sheets; ``techniques`` are texts (``tensor-parallel:ways=2``).

    Of the techniques that it has by itself, it lacks ``without``.
    """

    model: str = MODEL
    hardware: str = HARDWARE
    techniques: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    efficiency: str | None = None

    @classmethod
    def of(cls, file: ScenarioFile) -> "DataSheetServer | None":
        """Return the server of a scenario; None where that is a profile."""
        server = file.server
        if server.model is None or server.hardware is None:
            return None
        return cls(
            server.model, server.hardware, server.techniques, server.without, server.efficiency
        )

    def source(self) -> str:
        """Return what a chart of the server rests on, for its picture."""
        return f"Computed from data sheets: {server_name(asdict(self))}; {made_by()}"

    def setup(self) -> Setup:
        """Build the server; raises ``ServetwinError`` where parts do not fit, or name a file."""
        require_all_offered(self.in_scenario(ScenarioFile()))
        efficiency = parse_efficiency(self.efficiency or "")
        return build_setup(self.model, self.hardware, self.techniques, efficiency, self.without)

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
        return replace(others, techniques=(*others.techniques, text))

    def without_technique(self, text: str) -> "DataSheetServer":
        """Return the same with the technique off; raise as ``with_technique`` does."""
        name = offered_technique(text).name
        others = self.untouched(name)
        if not self.has_by_itself(name):
            return others
        return replace(others, without=(*others.without, text))

    def untouched(self, name: str) -> "DataSheetServer":
        """Return the same with the technique neither turned on nor off."""
        on, off = (
            tuple(text for text in texts if technique_name(text) != name)
            for texts in (self.techniques, self.without)
        )
        return replace(self, techniques=on, without=off)

    def in_scenario(self, file: ScenarioFile) -> ScenarioFile:
        """Return ``file`` with this server; all else as it was."""
        return file.model_copy(update={"server": Server(**asdict(self))})
