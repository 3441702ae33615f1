"""The options of a served engine."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

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
    techniques have changed it (None: they have not); ``port`` 0 takes a free one; ``step_log`` is
    the file for the step log (None: no log); ``beat`` times the reference beat between steps
    (``engine.kernels.beat``) and logs it; ``drain_s`` is how long running requests may go on
    after a signal to stop. A core that dies in a measurement ends the server, unless
    ``max_restarts`` says otherwise.
    """

    model: str = "base"
    policies: PolicyConfig = field(default_factory=PolicyConfig)
    host: str = "127.0.0.1"
    port: int = 8000
    computation: Computation = field(default_factory=Computation)
    seed: int = 0
    step_log: Path | None = None
    beat: bool = False
    drain_s: float = 30.0
    max_restarts: int = 0
    step_limit_s: float = 60.0
    shape: ModelConfig | None = None

    def model_config(self) -> ModelConfig:
        """Return the shape of the model; raise ``EngineError`` for one that is not there."""
        return self.shape or find_model(self.model).config

    def http(self) -> HttpSettings:
        """Return the part that the HTTP process needs."""
        return HttpSettings(
            self.host,
            self.port,
            self.drain_s,
            step_limit_s=self.step_limit_s,
            max_restarts=self.max_restarts,
        )

    def as_json(self) -> str:
        """Return one line of JSON that ``from_json`` reads."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> "ServeOptions":
        """Return the options that ``as_json`` wrote."""
        values: dict[str, Any] = json.loads(text)
        values["policies"] = PolicyConfig(**values["policies"])
        for name, kind in _NESTED.items():
            values[name] = TypeAdapter[Any](kind).validate_python(values[name])
        return cls(**values)


_NESTED: dict[str, Any] = {
    "computation": Computation,
    "shape": ModelConfig | None,
    "step_log": Path | None,
}
"""Fields that JSON has as plain values."""
