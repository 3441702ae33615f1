"""The tokenizer of a folder: prompts, chats, what is skipped, and files that are wrong."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from servetwin.engine.text.file_tokenizer import FileTokenizer, file_tokenizer
from servetwin.engine.text.tokenizer import Chat
from servetwin.workloads.errors import EngineError
from tests.support.text_tokenizers import BOS, EOS, byte_level, sentence_pieces, write_tokenizer

USER = {"role": "user", "content": "the dog"}


@pytest.fixture(params=[byte_level, sentence_pieces], ids=["byte-level", "pieces"])
def made(request: pytest.FixtureRequest) -> Any:
    return request.param()


@pytest.fixture
def folder(tmp_path: Path, made: Any) -> Path:
    write_tokenizer(tmp_path, made)
    return tmp_path


def text_of(tokenizer: FileTokenizer, ids: list[int]) -> str:
    decoder = tokenizer.decoder()
    return "".join(map(decoder.push, ids)) + decoder.flush()


def test_a_prompt_has_the_tokens_of_the_package_and_comes_back_as_its_text(
    folder: Path, made: Any
) -> None:
    tokenizer, text = FileTokenizer(folder, (2,)), "the dog sleeps on €"
    ids = tokenizer.encode(text)
    assert ids == made.encode(text).ids
    assert ids[0] == made.token_to_id(BOS)
    assert text_of(tokenizer, [*ids, made.token_to_id(EOS)]) == text
    assert tokenizer.eos_ids == (2,)


def test_a_chat_is_the_template_without_a_second_begin(folder: Path, made: Any) -> None:
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "bos_token": {"content": BOS},
                "eos_token": EOS,
                "chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}",
            }
        )
    )
    tokenizer = FileTokenizer(folder, ())
    assert tokenizer.has_template
    expected = made.encode(f"{BOS}the dog{EOS}", add_special_tokens=False).ids
    assert tokenizer.chat_ids(Chat([USER])) == expected


def test_the_file_of_a_template_wins_and_tools_have_their_own(folder: Path) -> None:
    named = [
        {"name": "default", "template": "dog"},
        {"name": "tool_use", "template": "fox"},
    ]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    tokenizer = FileTokenizer(folder, ())
    assert text_of(tokenizer, tokenizer.chat_ids(Chat([USER]))) == "dog"
    assert text_of(tokenizer, tokenizer.chat_ids(Chat([USER], [{"type": "function"}]))) == "fox"
    (folder / "chat_template.jinja").write_text("over")
    tokenizer = FileTokenizer(folder, ())
    assert text_of(tokenizer, tokenizer.chat_ids(Chat([USER]))) == "over"


def test_without_a_template_a_chat_is_plain_and_is_told_so(folder: Path, made: Any) -> None:
    tokenizer = FileTokenizer(folder, ())
    assert not tokenizer.has_template
    assert tokenizer.chat_ids(Chat([USER])) == made.encode("user: the dog\nassistant:").ids


def test_other_processes_read_the_file_once(folder: Path) -> None:
    tokenizer = file_tokenizer(folder, (1,))
    assert pickle.loads(pickle.dumps(tokenizer)) is tokenizer
    assert len(pickle.dumps(tokenizer)) < 1000


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (
            "tokenizer.json",
            None,
            r"tokenizer\.json: no such file; the engine reads tokenizer",
        ),
        ("tokenizer.json", "{", r"tokenizer\.json: is no tokenizer \("),
        ("tokenizer_config.json", "{", r"tokenizer_config\.json: is no JSON \("),
        ("tokenizer_config.json", "[]", r"tokenizer_config\.json: must be a JSON object$"),
        (
            "tokenizer_config.json",
            '{"chat_template": [1]}',
            r"tokenizer_config\.json: chat_template: must be a text or a list of \{name, ",
        ),
        (
            "tokenizer_config.json",
            '{"chat_template": "{% if %}"}',
            r"config\.json: chat_template: line 1 is no jinja2: ",
        ),
        ("chat_template.jinja", "{{", r"chat_template\.jinja: line 1 is no jinja2: "),
    ],
)
def test_a_file_that_is_wrong_is_named(
    tmp_path: Path, file: str, content: str | None, message: str
) -> None:
    write_tokenizer(tmp_path, byte_level())
    if content is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_text(content)
    with pytest.raises(EngineError, match=message) as refused:
        FileTokenizer(tmp_path, ())
    assert "\n" not in str(refused.value)
