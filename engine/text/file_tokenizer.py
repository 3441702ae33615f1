"""The tokenizer of a checkpoint: ``tokenizer.json``, and the chat template beside it."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from servetwin.engine.text.chat_template import ChatTemplate, plain_chat
from servetwin.engine.text.tokenizer import Chat
from servetwin.workloads.errors import EngineError
from servetwin.workloads.models.keys import Keys

# What the bytes of an unfinished character decode to.
_HALF = "\ufffd"
_LONGEST_WINDOW, _KEPT = 24, 6


class SettledDecoder:
    """The ``TextDecoder`` over a function that decodes a list of tokens.

    ``skipped`` are ids without a text, and so are those from ``vocab_size`` on, which a model may
    have for no token. A run of ids of ``byte_ids`` is shown at its end: until then another may make
    it invalid as a whole.
    """

    def __init__(
        self,
        decode: Callable[[list[int]], str],
        vocab_size: int,
        skipped: frozenset[int] = frozenset(),
        byte_ids: frozenset[int] = frozenset(),
    ) -> None:
        self._decode = decode
        self._vocab_size = vocab_size
        self._skipped = skipped
        self._byte_ids = byte_ids
        self._window: list[int] = []
        # How many characters of the window's text have been returned.
        self._shown = 0

    def push(self, token_id: int) -> str:
        """Return the text that is certain with ``token_id``."""
        if token_id in self._skipped or token_id >= self._vocab_size:
            return ""
        self._window.append(token_id)
        if token_id in self._byte_ids:
            return ""
        text = self._decode(self._window)
        settled = max(self._shown, len(text) - text.endswith(_HALF))
        fresh, self._shown = text[self._shown : settled], settled
        if len(self._window) > _LONGEST_WINDOW:
            self._shorten(text)
        return fresh

    def flush(self) -> str:
        """Return the text of what is still open."""
        text = self._decode(self._window)
        fresh, self._shown = text[self._shown :], len(text)
        return fresh

    def _shorten(self, text: str) -> None:
        """Keep the last tokens of the window: what they begin with has been shown, and does not
        change any more. A first word does, so they must have some text.
        """
        tail = self._decode(self._window[-_KEPT:])
        if tail:
            self._window = self._window[-_KEPT:]
            self._shown += len(tail) - len(text)


TOKENIZER_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"
TEMPLATE_FILE = "chat_template.jinja"
_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")


class FileTokenizer:
    """The ``Tokenizer`` of the folder of a checkpoint."""

    is_slow = True

    def __init__(self, folder: Path, eos_ids: tuple[int, ...]) -> None:
        """Read the files.

        Raises ``EngineError`` for one that is missing or is not what it should be.
        """
        self.eos_ids = eos_ids
        self._folder = folder
        self._tokenizer = _read_tokenizer(folder / TOKENIZER_FILE)
        self._templates = _read_templates(folder)
        self._skipped, self._of_bytes = _special_ids(self._tokenizer)
        self._vocab_size = 1 + max(self._tokenizer.get_vocab().values(), default=-1)

    def __reduce__(self) -> tuple[Any, ...]:
        return file_tokenizer, (self._folder, self.eos_ids)

    @property
    def has_template(self) -> bool:
        """Whether chats have a template of the model's own."""
        return self._templates is not None

    def encode(self, text: str) -> list[int]:
        """Return the token ids, with the special ones that the tokenizer puts around a prompt."""
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids

    def chat_ids(self, chat: Chat) -> list[int]:
        """Return the token ids of the model's template, which writes its special tokens itself."""
        if self._templates is None:
            return self.encode(plain_chat(chat))
        template = self._templates.with_tools if chat.tools else self._templates.plain
        ids: list[int] = self._tokenizer.encode(template.render(chat), add_special_tokens=False).ids
        return ids

    def decoder(self) -> SettledDecoder:
        """Return the decoder of a new output; special tokens have no text."""
        return SettledDecoder(self._decode, self._vocab_size, self._skipped, self._of_bytes)

    def _decode(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=True)
        return text


@lru_cache(maxsize=4)
def file_tokenizer(folder: Path, eos_ids: tuple[int, ...]) -> FileTokenizer:
    """Return the tokenizer of a folder, read once in a process."""
    return FileTokenizer(folder, eos_ids)


class _Templates(NamedTuple):
    plain: ChatTemplate
    with_tools: ChatTemplate


def _read_tokenizer(path: Path) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise EngineError(
            f"{path}: reading it needs tokenizers: pip install 'servetwin[engine]'"
        ) from None
    if not path.is_file():
        raise EngineError(
            f"{path}: no such file; the engine reads tokenizer.json only (transformers writes one: "
            "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER))"
        )
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises plain ones
        reason = " ".join(str(error).split())[:200]
        raise EngineError(f"{path}: is no tokenizer ({reason})") from None


def _special_ids(tokenizer: Any) -> tuple[frozenset[int], frozenset[int]]:
    """Return the ids without a text, and those that stand for one byte (``<0x0A>``)."""
    added = tokenizer.get_added_tokens_decoder().items()
    special = frozenset(token_id for token_id, token in added if token.special)
    decoder = tokenizer.decoder
    if decoder is None or b'"ByteFallback"' not in decoder.__getstate__():
        return special, frozenset()
    ids = (tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in range(256))
    return special, frozenset(token_id for token_id in ids if token_id is not None)


def _read_templates(folder: Path) -> _Templates | None:
    """Return the templates of ``chat_template.jinja``, else of ``tokenizer_config.json``."""
    path = folder / CONFIG_FILE
    config = Keys.read(path, EngineError).values if path.is_file() else {}
    tokens = {name: text for name in _SPECIAL_TOKENS if (text := _token_text(config.get(name)))}
    file = folder / TEMPLATE_FILE
    if file.is_file():
        templates, where = {"default": file.read_text("utf-8")}, str(file)
    else:
        where = f"{path}: chat_template"
        templates = _named(config.get("chat_template"), where)
    if not templates:
        return None
    plain = ChatTemplate(templates.get("default") or next(iter(templates.values())), tokens, where)
    tools = templates.get("tool_use")
    return _Templates(plain, ChatTemplate(tools, tokens, where) if tools else plain)


def _named(template: object, where: str) -> dict[str, str]:
    """Return templates by name; a file has one, or a list of ``{name, template}``."""
    if template is None:
        return {}
    if isinstance(template, str):
        return {"default": template}
    try:
        return {str(one["name"]): str(one["template"]) for one in template}  # type: ignore[attr-defined]
    except (TypeError, KeyError):
        raise EngineError(f"{where}: must be a text or a list of {{name, template}}") from None


def _token_text(token: object) -> str | None:
    """Return the text of a special token, which is a text or an object with ``content``."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None
