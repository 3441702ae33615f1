"""The file of a picture: checked before the work begins, drawn at its end."""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from servetwin.sim.records.run import NotWritten, write_files
from servetwin.workloads.errors import ServetwinError, did_you_mean

if TYPE_CHECKING:
    from servetwin.app.figures.canvas import Figure
    from servetwin.app.figures.pictures import Caption
    from servetwin.app.reports.report_folders import NamedRun
    from servetwin.sim.records.metrics import SLO


# What a picture of each extension begins with.
KINDS = {".svg": b"<svg", ".pdf": b"%PDF", ".png": b"\x89PNG", ".html": b"<!DOCTYPE html>"}
_NEEDS_NEITHER = "an .html needs neither"


class PictureError(ServetwinError):
    """A picture that cannot be drawn, or not there; the message names the option."""


@dataclass(frozen=True, slots=True)
class PictureFile:
    """A place for a picture; an ``.html`` follows the theme of its reader."""

    path: Path
    theme: str = "light"

    @classmethod
    def checked(cls, path: Path, *, dark: bool, overwrite: bool) -> "PictureFile":
        """Return the place, if a picture can be drawn there.

        Raises ``PictureError`` for an extension that is none of ``KINDS``, a file that is there, a
        folder where nothing can be written, and for what is not installed.
        """
        kind = path.suffix.lower()
        if kind not in KINDS:
            hint = did_you_mean(kind, list(KINDS), f"a picture is {', '.join(KINDS)}")
            raise PictureError(f"--plot {path}: unknown extension {kind!r}; {hint}")
        if dark and kind == ".html":
            raise PictureError("--dark: an .html is light or dark as its reader's browser is")
        _require_free(path, overwrite)
        if find_spec("plotly") is None:
            raise PictureError("--plot: needs plotly: pip install 'servetwin[report]'")
        if kind != ".html":
            _require_renderer(kind)
        return cls(path, "dark" if dark else "light")

    def draw(self, figure: "Figure", caption: "Caption | None" = None) -> int:
        """Write the picture, or without a caption the figure as it is, and return its bytes.

        Raises ``NotWritten`` where Chrome cannot draw it, or the disk has no room.
        """
        from servetwin.app.figures.pictures import Caption, picture
        from servetwin.app.reports.run_words import made_by

        if self.path.suffix.lower() == ".html":
            from servetwin.app.reports.html.page import picture_page

            page = picture_page(figure, caption or Caption(made_by()))
            return self._write(page.encode("utf-8", "replace"))
        return self._write(
            self._rendered(picture(figure, caption, self.theme) if caption else figure)
        )

    def _rendered(self, figure: "Figure") -> bytes:
        """Return the picture as Chrome draws it, which fetches nothing."""
        import kaleido  # type: ignore[import-untyped]

        from servetwin.app.figures.pictures import PNG_WIDTH_PX

        kind, width_px = self.path.suffix.lower().removeprefix("."), figure.layout.width
        size = {"width": width_px, "height": figure.layout.height}
        scale = PNG_WIDTH_PX / width_px if kind == "png" else 1
        opts, kopts = {"format": kind, "scale": scale, **size}, {"mathjax": False}
        calc: Callable[..., bytes] = kaleido.calc_fig_sync
        try:
            with _no_logging():  # of messages of the browser that kaleido passes over
                return calc(figure.to_dict(), opts=opts, kopts=kopts)
        except Exception as error:  # of whatever the browser, its pipe or its page fails with
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise NotWritten(
                f"--plot {self.path}: Chrome could not draw it ({reason}); {_NEEDS_NEITHER}"
            ) from error

    def _write(self, content: bytes) -> int:
        """Write all or nothing."""
        for lost in write_files(self.path.parent, [(self.path.name, content)]):
            size = f"its {len(content)} bytes"
            raise NotWritten(f"--plot {self.path}: {size} could not be written ({lost.reason})")
        return len(content)


@contextmanager
def _no_logging() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _require_free(path: Path, overwrite: bool) -> None:
    """Raise ``PictureError`` unless a picture may be written to ``path``."""
    if not path.parent.is_dir():
        raise PictureError(f"--plot {path}: there is no folder {path.parent}")
    if path.is_dir():
        raise PictureError(f"--plot {path}: a folder; name a file")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise PictureError(f"--plot {path}: nothing can be written in {path.parent}")
    if not os.path.lexists(path):
        return
    if not _is_picture(path):
        raise PictureError(f"--plot {path}: is there, and is no picture; name another file")
    if not overwrite:
        raise PictureError(f"--plot {path}: is there; --overwrite replaces it")


def _is_picture(path: Path) -> bool:
    """Return whether a file begins as a picture of its extension does."""
    mark = KINDS[path.suffix.lower()]
    try:
        with path.open("rb") as opened:
            return opened.read(len(mark)) == mark
    except OSError:
        return False


def _require_renderer(kind: str) -> None:
    """Raise ``PictureError`` saying what to install, where kaleido or its browser is missing."""
    if find_spec("kaleido") is None or find_spec("choreographer") is None:
        raise PictureError(
            f"--plot: {kind} needs kaleido and Chrome: pip install 'servetwin[pictures]'; "
            f"{_NEEDS_NEITHER}"
        )
    from choreographer.browsers.chromium import Chromium

    browser = Chromium.find_browser(skip_local=False)
    if browser is None or not os.access(browser, os.X_OK):
        where = f"BROWSER_PATH={browser} is none" if browser else "none was found"
        raise PictureError(
            f"--plot: {kind} needs Chrome or Chromium, and {where}: install one "
            f"(kaleido_get_chrome does), or set BROWSER_PATH; {_NEEDS_NEITHER}"
        )


def draw_runs(
    file: PictureFile, chart: str | None, runs: "Sequence[NamedRun]", slo: "SLO | None"
) -> str:
    """Draw a chart to a file, and return a line about it.

    Below its title stands the source. Raises ``PictureError`` where the runs have nothing for that
    chart.
    """
    from servetwin.app.figures.pictures import Caption
    from servetwin.app.reports.html.run_charts import run_figure
    from servetwin.app.reports.run_words import source_line

    figure = run_figure(chart, runs, slo)
    caption = Caption(source_line([named.run for named in runs]))
    size_bytes = file.draw(figure, caption)
    return f"picture: {file.path}, {size_bytes / 1e3:,.0f} kB"
