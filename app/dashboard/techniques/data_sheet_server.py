"""A server of data sheets, on which techniques are tried: a model and a device."""

from dataclasses import asdict, dataclass, replace

from app.dashboard.scenario.allowed_choices import offered_technique, require_all_offered
from app.scenario.scenario_file import ScenarioFile, Server
from sim.techniques.build import build_setup, parse_efficiency
from sim.techniques.setup import Setup

MODEL, HARDWARE = "llama-3-8b", "h100"


@dataclass(frozen=True, slots=True)
class DataSheetServer:
    """A server made of data sheets; ``techniques`` are texts (``tensor-parallel:ways=2``)."""

    model: str = MODEL
    hardware: str = HARDWARE
    techniques: tuple[str, ...] = ()
    efficiency: str | None = None

    @classmethod
    def of(cls, file: ScenarioFile) -> "DataSheetServer | None":
        """Return the server of a scenario; None where its step times are a calibrated profile."""
        server = file.server
        if server.model is None or server.hardware is None:
            return None
        return cls(server.model, server.hardware, server.techniques, server.efficiency)

    def setup(self) -> Setup:
        """Build the server; raises ``ServetwinError`` where parts do not fit, or name a file."""
        require_all_offered(self.in_scenario(ScenarioFile()))
        efficiency = parse_efficiency(self.efficiency or "")
        return build_setup(self.model, self.hardware, self.techniques, efficiency)

    def text_of(self, name: str) -> str | None:
        """Return a technique that is on, with its parameters; None where it is off."""
        return next((text for text in self.techniques if _name(text) == name), None)

    def with_technique(self, text: str) -> "DataSheetServer":
        """Return the same with the technique on, after the others, with these parameters.

        Raises ``PolicyError`` for an unknown technique or parameter.
        """
        offered_technique(text)
        others = self.without(_name(text)).techniques
        return replace(self, techniques=(*others, text))

    def without(self, name: str) -> "DataSheetServer":
        """Return the same with the technique off."""
        kept = tuple(text for text in self.techniques if _name(text) != name)
        return replace(self, techniques=kept)

    def in_scenario(self, file: ScenarioFile) -> ScenarioFile:
        """Return ``file`` with this server; all else as it was."""
        return file.model_copy(update={"server": Server(**asdict(self))})


def _name(text: str) -> str:
    return text.partition(":")[0]
