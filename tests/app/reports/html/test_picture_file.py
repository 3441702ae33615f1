"""The file of a picture: every bad place, what is not installed, and what Chrome draws."""

import shutil
import struct
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

pytest.importorskip("plotly", reason="pictures need plotly")

from servetwin.app.figures import canvas, curves, over_time
from servetwin.app.figures.pictures import Caption
from servetwin.app.reports.html import picture_file
from servetwin.app.reports.html.picture_file import PictureError, PictureFile
from servetwin.sim.records.run import NotWritten
from tests.support.drawn_figures import DRAWN
from tests.support.figure_frames import requests_frame
from tests.support.full_disk import files_at_most

CAPTION = Caption("Simulated: a server", "servetwin replay t.jsonl")
DRAWS = pytest.mark.skipif(
    shutil.which("chromium") is None or find_spec("kaleido") is None,
    reason="no chromium on this machine, or no kaleido to drive it",
)
MOST_BYTES = 1_500_000


def refusal(path: Path, *, dark: bool = False, overwrite: bool = False) -> str:
    with pytest.raises(PictureError) as said:
        PictureFile.checked(path, dark=dark, overwrite=overwrite)
    assert "\n" not in str(said.value)
    return str(said.value)


@pytest.mark.parametrize("name", ["c.gif", "c", "c.svgz", ".svg", "c.eps"])
def test_an_unknown_extension_names_the_known_ones(name: str, tmp_path: Path) -> None:
    said = refusal(tmp_path / name)
    assert "unknown extension" in said
    assert ".svg" in said


def test_a_place_where_nothing_can_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.html").mkdir()
    assert "there is no folder" in refusal(tmp_path / "none" / "c.html")
    assert "there is no folder" in refusal(tmp_path / "file" / "c.html")
    assert "a folder; name a file" in refusal(tmp_path / "folder.html")


def test_a_folder_without_rights_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write anywhere
    assert "nothing can be written in" in refusal(tmp_path / "c.html")


def test_a_picture_that_is_there_needs_overwrite_and_another_file_stays(tmp_path: Path) -> None:
    page, notes = tmp_path / "c.html", tmp_path / "notes.html"
    page.write_text("<!DOCTYPE html>\n")
    notes.write_text("my notes")
    assert "--overwrite replaces it" in refusal(page)
    assert PictureFile.checked(page, dark=False, overwrite=True).path == page
    for overwrite in (False, True):
        assert "is no picture" in refusal(notes, overwrite=overwrite)
    (tmp_path / "dangling.html").symlink_to(tmp_path / "none")
    assert "is no picture" in refusal(tmp_path / "dangling.html", overwrite=True)


def test_a_page_has_both_themes(tmp_path: Path) -> None:
    assert "--dark: an .html" in refusal(tmp_path / "c.html", dark=True)


@pytest.mark.parametrize("missing", ["kaleido", "choreographer", "plotly"])
def test_what_is_not_installed_is_one_line_that_says_what_to_install(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        picture_file, "find_spec", lambda name: None if name == missing else object()
    )
    assert "pip install 'servetwin[" in refusal(tmp_path / "c.png")
    if missing != "plotly":
        assert "an .html needs neither" in refusal(tmp_path / "c.svg")
        assert PictureFile.checked(tmp_path / "c.html", dark=False, overwrite=False)


@pytest.mark.parametrize("browser", ["/nowhere/chrome", None])
def test_without_chrome_it_says_so_before_any_work(
    browser: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chromium = pytest.importorskip("choreographer.browsers.chromium").Chromium
    monkeypatch.setattr(chromium, "find_browser", lambda **_: browser)
    said = refusal(tmp_path / "c.svg")
    assert "needs Chrome or Chromium" in said
    assert "BROWSER_PATH" in said
    assert "an .html needs neither" in said


@pytest.mark.slow
@DRAWS
def test_an_svg_has_the_title_the_source_and_the_lines(tmp_path: Path) -> None:
    """In the dark the text of every figure is looked at by ``pictures/test_themes.py``."""
    path = tmp_path / "c.svg"
    size_bytes = PictureFile(path, "light").draw(DRAWN["cdf"](), CAPTION)
    root = ET.fromstring(path.read_bytes())
    assert (root.get("width"), root.get("height")) == ("960", "540")
    said = "".join(root.itertext())
    for text in ("Distribution of TTFT", CAPTION.source, CAPTION.link, "TTFT, ms"):
        assert text in said
    assert size_bytes == path.stat().st_size < MOST_BYTES
    assert "http" not in said
    assert [each.name for each in tmp_path.iterdir()] == ["c.svg"]


@pytest.mark.slow
@DRAWS
def test_a_png_is_as_wide_as_a_screen(tmp_path: Path) -> None:
    path = tmp_path / "c.png"
    PictureFile(path, "dark").draw(DRAWN["server"](), CAPTION)
    width, height = struct.unpack(">II", path.read_bytes()[16:24])
    assert width == pytest.approx(1920, abs=2)
    assert height == pytest.approx(1080, abs=2)


def test_a_page_needs_neither_and_names_nothing_of_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picture_file.PictureFile, "_rendered", None)
    path = tmp_path / "c.html"
    PictureFile(path).draw(DRAWN["cdf"](), CAPTION)
    page = path.read_text()
    assert "<h1>Distribution of TTFT</h1>" in page
    assert CAPTION.source in page
    assert CAPTION.link in page
    assert path.stat().st_size < 3_000_000


def test_twenty_thousand_requests_are_no_larger_file(tmp_path: Path) -> None:
    frames = {name: requests_frame(20_000, seed) for seed, name in enumerate("AB")}
    path = tmp_path / "c.html"
    for draw in (curves.latency_cdf, over_time.latency_over_time):
        PictureFile(path).draw(draw(frames, "ttft_s", canvas.looks(frames)), CAPTION)
        assert path.stat().st_size < 3_000_000


@pytest.mark.slow
@DRAWS
@pytest.mark.parametrize("kind", ["svg", "png"])
def test_pictures_of_twenty_thousand_requests_are_bounded(kind: str, tmp_path: Path) -> None:
    frames = {name: requests_frame(20_000, seed) for seed, name in enumerate("AB")}
    figure = over_time.latency_over_time(frames, "ttft_s", canvas.looks(frames))
    assert PictureFile(tmp_path / f"c.{kind}").draw(figure, CAPTION) < MOST_BYTES


def test_a_full_disk_leaves_the_old_picture(tmp_path: Path) -> None:
    path = tmp_path / "c.html"
    path.write_text("<!DOCTYPE html>old")
    with files_at_most(1000), pytest.raises(NotWritten, match="bytes could not be written"):
        PictureFile(path).draw(DRAWN["cdf"](), CAPTION)
    assert path.read_text() == "<!DOCTYPE html>old"
    assert [each.name for each in tmp_path.iterdir()] == ["c.html"]


def test_a_browser_that_fails_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kaleido = pytest.importorskip("kaleido")

    def fails(*_: Any, **__: Any) -> bytes:
        raise RuntimeError("the pipe broke\nand more")

    monkeypatch.setattr(kaleido, "calc_fig_sync", fails)
    with pytest.raises(NotWritten, match=r"could not draw it \(the pipe broke\); an .html") as said:
        PictureFile(tmp_path / "c.svg").draw(DRAWN["cdf"](), CAPTION)
    assert said.value.exit_code == 1
    assert not list(tmp_path.iterdir())
