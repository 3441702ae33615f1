"""What all entries of the catalogues have in common: frozen, checked, no unknown fields."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Part(BaseModel):
    """A part of a catalogue entry."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
