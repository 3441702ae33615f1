"""A run folder that a colleague sent: taken out of its zip, checked, and kept among the others.

Its scenario may name files of the machine that it was made on. Here they would be other files, or
none, so their names become words that no policy or profile has.
"""

import re
import shutil
import tempfile
import zipfile
import zlib
from dataclasses import fields
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from servetwin.app.dashboard.kept_runs.folder import MOST_ZIP_BYTES, new_child
from servetwin.app.reports.report_folders import find_runs
from servetwin.app.reports.run_words import without_paths
from servetwin.app.scenario.options.deployment import Deployment
from servetwin.sim.records.run import RunError
from servetwin.workloads.errors import ServetwinError
from servetwin.workloads.files import mapping_in
from servetwin.workloads.plugins import names_a_file

MOST_FILES = 2_000
_KEPT = {".json", ".jsonl", ".yaml", ".parquet", ".csv"}
_SCENARIO = "scenario.yaml"
# What zipfile raises for damaged, encrypted or unknown archives, and paths that cannot be.
_UNREADABLE = (
    zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError,
    ValueError,
)  # fmt: skip
# The keys of a scenario from which a server is built again.
_NAMES_SERVER = (
    *(field.name for field in fields(Deployment)), "policies", "cluster", "eager_preset",
)  # fmt: skip


def receive_run(root: Path, file_name: str, content: bytes) -> str:
    """Keep the run folder, or folder of runs, of a zip archive in ``root``; return its name there.

    Raises ``RunError`` for what is no archive, too much, or no run.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "received"
        try:
            _unpack(file_name, content, folder)
        except _UNREADABLE as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise RunError(
                f"{file_name}: not a readable zip archive ({reason}); zip the whole run folder"
            ) from None
        _check(folder, file_name)
        return _keep(root, folder, file_name)


def _unpack(file_name: str, content: bytes, folder: Path) -> None:
    """Write the files of a run folder into ``folder``, at their paths in the archive."""
    with zipfile.ZipFile(BytesIO(content)) as archive:
        entries = [one for one in archive.infolist() if not one.is_dir()]
        _require_small(file_name, entries)
        for entry in entries:
            path = PurePosixPath(entry.filename.replace("\\", "/"))
            if path.is_absolute() or ".." in path.parts or ":" in entry.filename:
                raise RunError(f"{file_name}: {entry.filename!r} leads out of the archive")
            if path.suffix in _KEPT and "__MACOSX" not in path.parts:
                target = folder.joinpath(*path.parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(entry))


def _keep(root: Path, folder: Path, file_name: str) -> str:
    name = _free_name(root, folder, file_name)
    try:
        shutil.copytree(_top(folder), new_child(root, name))
    except OSError as error:
        shutil.rmtree(root / name, ignore_errors=True)
        raise RunError(f"{name}: cannot be kept ({error.strerror or error})") from None
    return name


def _require_small(file_name: str, entries: list[zipfile.ZipInfo]) -> None:
    """Raise ``RunError`` before anything is unpacked; zipfile reads no more than is declared."""
    size_bytes = sum(entry.file_size for entry in entries)
    if len(entries) > MOST_FILES or size_bytes > MOST_ZIP_BYTES:
        raise RunError(
            f"{file_name}: {len(entries):,} files of {size_bytes / 1e6:,.0f} MB; at most "
            f"{MOST_FILES:,} files of {MOST_ZIP_BYTES / 1e6:.0f} MB; copy the folder into the "
            "folder of runs instead"
        )


def _check(folder: Path, file_name: str) -> None:
    """Raise ``RunError`` where what came is no run; take the names of files out of scenarios."""
    try:
        if not folder.is_dir():
            raise RunError("no file of a run folder in it")
        for path in folder.rglob(_SCENARIO):
            shown = _without_files(mapping_in(path))
            path.write_text(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True))
        find_runs([_top(folder)])
    except (ServetwinError, OSError, ValueError) as error:
        reason = re.sub(rf"{re.escape(str(folder))}/?", "", str(error)).removeprefix(": ")
        raise RunError(f"{file_name}: {reason}") from None


def _without_files(record: dict[str, Any]) -> dict[str, Any]:
    """Return a scenario whose server can be built again only from what is shipped."""
    served = {key: _not_a_file(record[key]) for key in _NAMES_SERVER if key in record}
    return {**without_paths(record), **served}


def _not_a_file(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _not_a_file(of) for key, of in value.items()}
    if isinstance(value, list):
        return [_not_a_file(one) for one in value]
    if isinstance(value, str) and (names_a_file(value) or re.search(r"[/\\]|\.(json|py)\b", value)):
        plain = re.split(r"[/\\]", value)[-1]
        return f"{plain} (a file of another machine)"
    return value


def _top(folder: Path) -> Path:
    """Return the folder of the run: an archive often has one folder that holds all."""
    inside = list(folder.iterdir())
    return _top(inside[0]) if len(inside) == 1 and inside[0].is_dir() else folder


def _free_name(root: Path, folder: Path, file_name: str) -> str:
    """Return the name of the folder, or of the archive, with a number where it is taken."""
    top = _top(folder)
    given = PurePosixPath(file_name).stem if top == folder else top.name
    name = re.sub(r"[^A-Za-z0-9._+-]+", "-", given).strip("-._+")[:70] or "received"
    taken = {path.name for path in root.iterdir()} if root.is_dir() else set()
    numbered = (f"{name}-{number}" for number in range(2, len(taken) + 3))
    return next(one for one in (name, *numbered) if one not in taken)
