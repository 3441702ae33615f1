"""Options that say what a load test sends, and when."""

from pathlib import Path
from typing import Annotated

import typer

_PANEL = "Load"

TracePath = Annotated[
    Path | None,
    typer.Option("--trace", help="Replay it: any known trace.", rich_help_panel=_PANEL),
]
Arrivals = Annotated[
    str | None,
    typer.Option(
        metavar="LAW[:KEY=N,...]",
        help="Or generate: constant, poisson, gamma:cv=2, mmpp2, ramp:from=1,to=10,steps=5 ...",
        rich_help_panel=_PANEL,
    ),
]
Concurrency = Annotated[
    int | None,
    typer.Option(
        help="Or so many users, each of whom waits for every answer.", min=1, rich_help_panel=_PANEL
    ),
]
PromptTokens = Annotated[
    str | None,
    typer.Option(
        metavar="N|LAW[:KEY=N,...]",
        help="Generated prompts: 512, lognormal:mean=512,cv=0.8,max=4096 ...",
        rich_help_panel=_PANEL,
    ),
]
OutputTokens = Annotated[
    str | None,
    typer.Option(
        metavar="N|LAW[:KEY=N,...]", help="Generated outputs, alike.", rich_help_panel=_PANEL
    ),
]
Rate = Annotated[
    float | None,
    typer.Option(help="Requests/s that are generated, or scaled to.", rich_help_panel=_PANEL),
]
ThinkTime = Annotated[
    str | None,
    typer.Option(
        metavar="S|LAW[:KEY=N,...]",
        help="Of users, in seconds: 2, exponential:mean=2, lognormal:median=2,sigma=1.",
        rich_help_panel=_PANEL,
    ),
]
RampUp = Annotated[
    float, typer.Option(help="Seconds until the last user begins.", min=0, rich_help_panel=_PANEL)
]
TimeScale = Annotated[
    float | None,
    typer.Option(help="Times all times of the trace; 0.5 = twice as fast.", rich_help_panel=_PANEL),
]
Loop = Annotated[
    int, typer.Option(help="Replay the trace so many times over.", min=1, rich_help_panel=_PANEL)
]
Duration = Annotated[
    float | None, typer.Option(help="Send nothing after so many s.", rich_help_panel=_PANEL)
]
WarmUp = Annotated[
    float,
    typer.Option(help="First seconds that no figure counts.", min=0, rich_help_panel=_PANEL),
]
Drain = Annotated[
    float | None,
    typer.Option(
        help="Seconds for answers after the last send; default --timeout.",
        min=0,
        rich_help_panel=_PANEL,
    ),
]
Cancel = Annotated[
    str | None,
    typer.Option(
        metavar="share=P,after=N",
        help="Hang up on some: share=0.1,after=5tokens or after=200ms.",
        rich_help_panel=_PANEL,
    ),
]
Retries = Annotated[
    int,
    typer.Option(
        help="Ask so often again after 429, 503 or no connection.", min=0, rich_help_panel=_PANEL
    ),
]
