"""Read a server from its name and version, its command line, its YAML file or its log."""

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import yaml

from servetwin.sim.catalogue.servers.settings import BACKENDS, Backend, Flags, Pairs, ServerSettings
from servetwin.workloads.errors import PolicyError, TraceError
from servetwin.workloads.files import document, open_text
from servetwin.workloads.program.package import shipped_json

FORMS = (
    "a name such as vllm@0.19, a command line such as 'vllm serve MODEL ...', or a file of either"
)
_NAME = re.compile(r"(vllm|sglang|trtllm|tensorrt-llm)(?:@v?(\d\S*))?", re.IGNORECASE)
_IMAGE = re.compile(r"(?:vllm-openai|sglang|tensorrt-llm/release):v?(\d[\w.]*)")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_PAIR = re.compile(r"'?\b([a-z]\w*)'?\s*[=:]\s*('[^']*'|\"[^\"]*\"|[\w.:/+-]+)")
# Patterns: of the lines that dump all settings, of the version of a server, of what it printed by
# the role of the setting, and of the logs of each backend.
_LOGS: dict[str, Any] = shipped_json("sim/catalogue/servers/logs.json")


def read_server(text: str) -> ServerSettings:
    """Return what a name, a command line or the file of one says of a server.

    Raises ``PolicyError`` that names the flag or the file, and what would be right.
    """
    if match := _NAME.fullmatch(text.strip()):
        name = match[1].lower().replace("tensorrt-llm", "trtllm")
        return ServerSettings(cast(Backend, name), match[2])
    path = Path(text)
    if len(text) < 1024 and "\n" not in text and path.is_file():
        return _of_file(path)
    if (settings := _of_command(text)) is None:
        raise PolicyError(f"--server: {text[:60]!r} names no server; give {FORMS}")
    return settings


def _of_file(path: Path) -> ServerSettings:
    if path.suffix in (".yml", ".yaml"):
        pairs = _of_yaml(path)
        backend = _backend_of_fields(path, pairs)
        return ServerSettings.of(backend, None, _checked(Flags.of(backend), pairs))
    try:
        with open_text(path) as file:
            text = _COLOURS.sub("", file.whole())
    except TraceError as error:
        raise PolicyError(f"--server: {error}") from error
    backends = [name for name, pattern in _LOGS["backends"].items() if re.search(pattern, text)]
    if backends:
        return _of_log(cast(Backend, backends[0]), text)
    if settings := _of_command(text):
        return settings
    raise PolicyError(f"--server: {path}: neither the log nor the command line of a server")


def _of_command(text: str) -> ServerSettings | None:
    """Return the settings of the first command line that starts a server; None without one."""
    for line in re.sub(r"\\\s*\n", " ", text).splitlines():
        for name in BACKENDS:
            flags = Flags.of(name)
            try:
                words = shlex.split(line, comments=True)
            except ValueError as error:
                raise PolicyError(f"--server: {line[:60]!r}: {error}") from None
            if (rest := _behind(words, flags.commands)) is not None:
                version = next((m[1] for word in words if (m := _IMAGE.search(word))), None)
                pairs = _checked(flags, list(_pairs(flags, rest)))
                return ServerSettings.of(cast(Backend, name), version, _with_files(flags, pairs))
    return None


def _behind(words: list[str], commands: list[str]) -> list[str] | None:
    """Return the words behind the name of a command."""
    for command in commands:
        names = command.split()
        for place in range(len(words) - len(names) + 1):
            here = words[place : place + len(names)]
            if all(name in word for name, word in zip(names, here, strict=True)):
                return words[place + len(names) :]
    return None


def _pairs(flags: Flags, words: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the flags of a command line; the word that belongs to none is the model."""
    place, has_model = 0, any(flags.name(word) == "model" for word in words if word[0:1] == "-")
    while place < len(words):
        word = words[place]
        place += 1
        if word in ("&", "|", ">", "2>&1", ";", "&&"):
            return
        if not word.startswith("-"):
            if has_model:
                raise PolicyError(f"--server: {word!r} belongs to no flag; leave it out")
            has_model = True
            yield _model(flags), word
            continue
        flag, equals, value = word.partition("=")
        name = flags.name(flag.partition(".")[0])
        values = [value] if equals else []
        is_switch = flags.is_switch(name)
        while not equals and place < len(words) and not _is_flag(words[place]):
            is_wanted = words[place].lower() in ("true", "false") if is_switch else has_model
            if not is_wanted and (is_switch or values):
                break
            values.append(words[place])
            place += 1
        if not values and not is_switch and name in flags.settings:
            raise PolicyError(f"--server: {flag} has no value; write {flag} VALUE")
        yield name, " ".join(values) or "true"


def _model(flags: Flags) -> str:
    return next(name for name, role in flags.settings.items() if role == "model")


def _is_flag(word: str) -> bool:
    return (word[0:1] == "-" and not re.fullmatch(r"-\d+(\.\d+)?", word)) or word in ("&", "|")


def _checked(flags: Flags, pairs: Pairs) -> Pairs:
    for name, _ in pairs:
        flags.require_known(name)
    return pairs


def _with_files(flags: Flags, pairs: Pairs) -> Pairs:
    """Return the flags of the files that a command line names, and its own, which win."""
    files = [value for role, _, value in flags.roles(pairs) if role == "file"]
    inside = [pair for file in files for pair in _of_yaml(Path(file))]
    return [*_checked(flags, [(flags.name(name), value) for name, value in inside]), *pairs]


def _of_yaml(path: Path) -> Pairs:
    """Return the fields of a YAML file; those inside others have names such as ``a.b``."""
    try:
        tree = yaml.safe_load(document(path))
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = str(getattr(error, "strerror", None) or error).splitlines()[0]
        raise PolicyError(f"--server: {path}: {reason}") from error
    if not isinstance(tree, dict):
        raise PolicyError(f"--server: {path}: fields such as 'tensor_parallel_size: 8' are needed")
    return list(_fields(tree))


def _fields(tree: Mapping[Any, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for key, value in tree.items():
        name = before + str(key).replace("-", "_")
        if isinstance(value, dict):
            yield from _fields(value, f"{name}.")
        else:
            yield name, "none" if value is None else str(value)


def _backend_of_fields(path: Path, pairs: Pairs) -> Backend:
    """Return the server that has the most of the fields, TensorRT-LLM of equal ones."""
    counts = {
        name: sum(Flags.of(name).name(field) in Flags.of(name).settings for field, _ in pairs)
        for name in reversed(BACKENDS)
    }
    backend = max(counts, key=lambda name: counts[name])
    if not counts[backend]:
        raise PolicyError(f"--server: {path}: no field of a server, such as tensor_parallel_size")
    return cast(Backend, backend)


def _of_log(backend: Backend, text: str) -> ServerSettings:
    """Return the settings that a log prints; the first value of each counts."""
    flags = Flags.of(backend)
    first: dict[str, str] = {}
    for line in text.splitlines():
        if dump := re.search(_LOGS["dumps"], line):
            for name, value in _PAIR.findall(line[dump.start() :]):
                if value.lower() != "none":
                    first.setdefault(flags.name(name), value.strip("'\"").rstrip("."))
    version = next((m[1] for pattern in _LOGS["versions"] if (m := re.search(pattern, text))), None)
    names = {role: name for name, role in flags.settings.items()}
    for role, patterns in _LOGS["printed"].items():
        printed = next((m[1] for p in patterns if (m := re.search(p, text))), None)
        if printed is not None and role in names:
            first[names[role]] = printed.replace(",", "")
    return ServerSettings.of(backend, version, list(first.items()))
