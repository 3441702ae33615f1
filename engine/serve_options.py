"""The options of a served engine."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from servetwin.engine.checkpoint.find_model import find_model
from servetwin.engine.http.http_settings import HttpSettings
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.model_config import ModelConfig
from servetwin.policies.config import PolicyConfig


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """A model, its policies, how it computes, and where it listens.

    ``model`` is a preset's name or the folder of a checkpoint. ``shape`` is that of the model where
    techniques have changed it (None: they have not); ``step_log`` is the file for the step log
    (None: no log); ``beat`` times the reference beat between steps (``engine.kernels.beat``) and
    logs it. Unless ``http`` says otherwise, the port is a free one, and a core that dies in a
    measurement ends the server.
    """

    model: str = "base"
    policies: PolicyConfig = field(default_factory=PolicyConfig)
    http: HttpSettings = HttpSettings(port=0, max_restarts=0)  # noqa: RUF009, it is frozen
    computation: Computation = field(default_factory=Computation)
    seed: int = 0
    step_log: Path | None = None
    beat: bool = False
    shape: ModelConfig | None = None

    def model_config(self) -> ModelConfig:
        """Return the shape of the model; raise ``EngineError`` for one that is not there."""
        return self.shape or find_model(self.model).config

    def as_json(self) -> str:
        """Return one line of JSON that ``from_json`` reads."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> "ServeOptions":
        """Return the options that ``as_json`` wrote."""
        return TypeAdapter(cls).validate_json(text)
