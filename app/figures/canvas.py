"""The empty figure, its light and dark templates, its alternative text, and shared styles.

All other modules draw with the methods of the figure that they get here. Colours of text, grid and
background are the template's, so that one figure fits both pages.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import plotly.graph_objects as go  # type: ignore[import-untyped]
from plotly.subplots import make_subplots  # type: ignore[import-untyped]

from servetwin.app.words import asset_table, short

_STYLE = asset_table("template.yaml")
COLOURS: tuple[str, ...] = tuple(_STYLE["template"]["layout"]["colorway"])
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = ("circle", "square", "diamond", "cross", "x", "triangle-up", "star")
LIGHT_PAGE, DARK_PAGE = (one["page"] for one in _STYLE["pages"].values())
# Limits and diagonals: visible on both pages, and no run's own.
LIMIT_COLOUR = "#808080"
LIMIT_LINE = {"color": LIMIT_COLOUR, "dash": "dash"}


@dataclass(frozen=True, slots=True)
class Look:
    """How one policy or run is drawn."""

    colour: str
    dash: str
    symbol: str

    @property
    def line(self) -> dict[str, Any]:
        """A line's colour and dash."""
        return {"color": self.colour, "dash": self.dash, "width": 2}

    @property
    def steps(self) -> dict[str, Any]:
        """A line that stays at each value until the next."""
        return {**self.line, "shape": "hv"}

    @property
    def points(self) -> dict[str, Any]:
        """The colour and symbol of points; they are small, for there are many."""
        return {"color": self.colour, "symbol": self.symbol, "size": 5, "opacity": 0.55}

    def symbols(self, filled: Iterable[bool]) -> dict[str, Any]:
        """Return the colour of large points and their symbols, filled or open."""
        symbols = [self.symbol if one else f"{self.symbol}-open" for one in filled]
        return {"color": self.colour, "symbol": symbols, "size": 11, "line": {"width": 2}}


# Looks by the name of a policy or run.
Looks = Mapping[str, Look]


def looks(names: Iterable[str]) -> dict[str, Look]:
    """Return a look per name, by its place; give every page the names in the same order."""
    kinds = zip(cycle(COLOURS), cycle(DASHES), cycle(SYMBOLS), strict=False)
    return {name: Look(*kind) for name, kind in zip(dict.fromkeys(names), kinds, strict=False)}


# What lies higher than so many limits is cut off.
MOST_LIMITS = 4


class Figure(go.Figure):  # type: ignore[misc]  # plotly has no type hints
    """A plotly figure with its title, its alternative text, and notes on what it leaves out."""

    @property
    def title(self) -> str:
        """What is seen in it."""
        return str(self.layout.meta["title"])

    @property
    def alt(self) -> str:
        """What is read to people who cannot see it."""
        return str(self.layout.meta["alt"])

    @property
    def note(self) -> str:
        """The notes, to stand beside it; empty without any."""
        notes = self.layout.meta.get("notes", ())
        return f"{'; '.join(notes)}." if notes else ""

    def set_alt(self, alt: str) -> None:
        """Set the alternative text of a figure that was begun without one."""
        self.layout.meta = {**self.layout.meta, "alt": alt}

    def add_note(self, note: str) -> None:
        """Note what it leaves out."""
        notes = [*self.layout.meta.get("notes", ()), note]
        self.layout.meta = {**self.layout.meta, "notes": notes}

    def note_sample(self, counts: Mapping[str, tuple[int, int]], what: str) -> None:
        """Note how many of how many it shows of each run, where that is not all."""
        cut = {run: (shown, of) for run, (shown, of) in counts.items() if shown < of}
        if len(cut) > 1 and len({*counts.values()}) == 1:
            cut = {"Each": next(iter(cut.values()))}
        for run, (shown, of) in cut.items():
            name = f"{run}: " if len(counts) > 1 else ""
            self.add_note(f"{name}{shown:,} of {of:,} {what} shown")

    def plot(self, mode: str, name: str, x: object, y: object, hover: str, **options: Any) -> None:
        """Add lines or markers, as ``mode`` says; ``options`` are more of ``add_scatter``."""
        x, y = as_float32(x), as_float32(y)
        self.add_scatter(x=x, y=y, mode=mode, name=name, hovertemplate=hover, **options)

    def add_band(
        self,
        name: str,
        x: object,
        bounds: tuple[object, object],
        fill: str,
        in_legend: bool = True,
        **panel: int,
    ) -> None:
        """Fill the area between bounds, low and high; ``panel`` is row and column, if several."""
        low, high = bounds
        for y, filled in ((high, None), (low, "tonexty")):
            self.add_scatter(
                x=x, y=y, mode="lines", line={"width": 0}, fill=filled, fillcolor=fill, name=name,
                hoverinfo="skip", showlegend=in_legend and filled is not None, **panel,
            )  # fmt: skip

    def add_spans(
        self,
        name: str,
        y: object,
        spans_s: tuple[Any, Any],
        texts: Sequence[str],
        hover: str,
        **options: Any,
    ) -> None:
        """Add horizontal bars from starts to ends; ``texts`` are for the hover text alone."""
        start_s, end_s = spans_s
        options |= {"orientation": "h", "text": texts, "textposition": "none"}
        length_s = end_s - start_s
        self.add_bar(y=y, base=start_s, x=length_s, name=name, hovertemplate=hover, **options)

    def add_limit(self, limit: float, highest: float) -> float:
        """Draw a limit; let the figure end above it and its ``highest`` value, but not far above.

        Return where it ends.
        """
        self.add_hline(y=limit, line=LIMIT_LINE, annotation_text="limit")
        top = max(min(1.1 * highest, MOST_LIMITS * limit), 1.25 * limit)
        self.update_yaxes(range=[0, top])
        return top

    def place_legend(self, row: int) -> str:
        """Put a legend above the panel of that row; return its name, which traces take."""
        legend = f"legend{row}" if row > 1 else "legend"
        top = self.layout["yaxis" if row == 1 else f"yaxis{row}"].domain[1]
        place = {"orientation": "h", "x": 0, "y": top, "yanchor": "bottom", "font": {"size": 11}}
        self.update_layout({legend: place})
        return legend


# A logarithmic axis with numbers at its ticks: plotly has single digits between powers of ten.
# With more ticks, it moves those that begin with a 1 out of the line.
LOG_AXIS = {"type": "log", "tickformat": ",~r", "nticks": 4}

# The end of a hover text that names the run.
OF_RUN = "<extra>%{fullData.name}</extra>"

_EMPTY = go.layout.Template()
_HEIGHT_PX = 340
_PANEL_PX = 170
_GAP_PX = 40


def recoloured(part: Any, colours: Mapping[str, str]) -> Any:
    """Return a part of a figure's JSON with its colours replaced; arrays of numbers stay."""
    if isinstance(part, dict):
        return {key: recoloured(value, colours) for key, value in part.items()}
    if isinstance(part, list | tuple):
        return [recoloured(value, colours) for value in part]
    return colours.get(part, part) if isinstance(part, str) else part


LIGHT, DARK = (
    go.layout.Template(recoloured(_STYLE["template"], page)) for page in _STYLE["pages"].values()
)


def canvas(x: str, y: str, alt: str, title: str = "") -> Figure:
    """Return an empty figure with axis titles; ``alt`` is read to people who cannot see it.

    ``title`` says what is seen; by default it is ``y`` by ``x``. Pictures have it above the chart.
    """
    figure = Figure(layout=_layout(alt, title or _by(y, x)))
    figure.update_xaxes(title=x)
    figure.update_yaxes(title=y, rangemode="tozero")
    return figure


def stacked_canvas(
    x: str, ys: Sequence[str], alt: str, heights_px: Sequence[int] = (), title: str = ""
) -> Figure:
    """Return panels one below the other on the same ``x``, by default of equal heights."""
    heights = list(heights_px) or [_PANEL_PX] * len(ys)
    whole_px = sum(heights)
    figure: Figure = make_subplots(
        rows=len(ys), cols=1, shared_xaxes=True, row_heights=heights, figure=Figure(),
        vertical_spacing=min(0.06, _GAP_PX / whole_px) if len(ys) > 1 else None,
    )  # fmt: skip
    figure.update_layout(_layout(alt, title or _by(", ".join(ys), x)))
    figure.update_layout(height=whole_px + 90)
    for row, y in enumerate(ys, start=1):
        figure.update_yaxes(title=y, rangemode="tozero", row=row, col=1)
    figure.update_xaxes(title=x, row=len(ys), col=1)
    return figure


def canvas_in_columns(titles: Sequence[tuple[str, str]], alt: str, title: str = "") -> Figure:
    """Return panels side by side; ``titles`` are those of the x and the y axis of each."""
    figure: Figure = make_subplots(cols=len(titles), horizontal_spacing=0.15, figure=Figure())
    figure.update_layout(_layout(alt, title or " and ".join(_by(y, x) for x, y in titles)))
    for col, (x, y) in enumerate(titles, start=1):
        figure.update_xaxes(title=x, col=col)
        figure.update_yaxes(title=y, col=col)
    return figure


def in_words(values: pd.Series, unit: str) -> str:
    """Return the median and the ends of values as an alternative text has them."""
    known = values.dropna()
    if known.empty:
        return "no value"
    middle, high, most = (short(float(known.quantile(q))) for q in (0.5, 0.99, 1.0))
    return f"median {middle} {unit}, p99 {high} {unit}, at most {most} {unit}"


def error_bars(values: Iterable[float], ends: Iterable[Iterable[float]]) -> dict[str, Any]:
    """Return bars from the values to the ends of their intervals, as far as these are finite."""
    pairs = list(zip(values, ends, strict=True))
    up = [max(0.0, high - value) if isfinite(high) else 0.0 for value, (_, high) in pairs]
    down = [max(0.0, value - low) if isfinite(low) else 0.0 for value, (low, _) in pairs]
    return {"type": "data", "symmetric": False, "array": up, "arrayminus": down}


def pattern_marker(colour: str, pattern: str) -> dict[str, Any]:
    """Return a bar's colour and the pattern over it, for people who do not see the colour."""
    shape = {"shape": pattern, "size": 5, "fillmode": "overlay"}
    return {"color": colour, "pattern": shape, "line": {"width": 0}}


def escape_markup(text: object) -> str:
    """Return a name from a trace without HTML tags, of which plotly reads a few."""
    return str(text).replace("&", "&amp;").replace("<", "&lt;")


def _by(y: str, x: str) -> str:
    """Return ``TTFT by arrival`` for axes with units."""
    what, over = (title.rpartition(", ")[0] or title for title in (y, x))
    return f"{what} by {over}" if what else over


def _layout(alt: str, title: str) -> dict[str, Any]:
    return {
        "template": _EMPTY,
        "meta": {"alt": alt, "title": f"{title[:1].upper()}{title[1:]}"},
        "height": _HEIGHT_PX,
        "margin": {"l": 60, "r": 20, "t": 20, "b": 50},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        "hovermode": "closest",
    }


# Frames by the name of a policy or run.
Frames = Mapping[str, pd.DataFrame]
FloatArray = npt.NDArray[np.float64]


def evenly(frame: pd.DataFrame, most: int) -> pd.DataFrame:
    """Return at most ``most`` rows, evenly spaced, first and last among them."""
    return frame.iloc[_places(len(frame), most)]


def _places(count: int, most: int) -> npt.NDArray[np.int64]:
    return np.linspace(0, max(count - 1, 0), min(count, most)).round().astype(int)


def cdf_points(values: pd.Series, most: int = 400) -> tuple[FloatArray, FloatArray]:
    """Return at most ``most`` of the defined values in order, and the share at or below each."""
    defined = np.sort(values.to_numpy(dtype=float))
    defined = defined[np.isfinite(defined)]
    shares = np.arange(1, len(defined) + 1) / max(len(defined), 1)
    places = _places(len(defined), most)
    return defined[places], shares[places]


def bucket_edges(start_s: float, end_s: float, most: int = 100) -> FloatArray:
    """Return edges of equal buckets over a span, at least a millisecond long in all."""
    return np.linspace(start_s, max(end_s, start_s + 1e-3), most + 1)


def as_float32(values: object) -> npt.NDArray[np.float32]:
    """Return half the bytes: seven digits are more than a screen shows."""
    return np.asarray(values, dtype=np.float32)
