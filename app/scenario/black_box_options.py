"""Command-line options of what is done from outside."""

from typing import Annotated

import typer

from app.scenario.endpoint_options import ApiChoice, PromptChoice

PANEL = "Endpoint"


MaxMinutes = Annotated[
    float,
    typer.Option(help="Calibration from outside takes no longer.", min=0.1, rich_help_panel=PANEL),
]
MaxRequests = Annotated[
    int, typer.Option(help="... and sends no more requests.", min=20, rich_help_panel=PANEL)
]
Api = Annotated[
    ApiChoice | None,
    typer.Option(help="The API to ask; default the dialect's own.", rich_help_panel=PANEL),
]
Prompt = Annotated[PromptChoice, typer.Option(help="Token ids or text.", rich_help_panel=PANEL)]
