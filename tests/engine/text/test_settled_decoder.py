"""Any tokens in any order read, piece by piece, as they do when decoded at once."""

from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.engine.text.file_tokenizer import SettledDecoder
from tests.support.text_tokenizers import SPECIAL, byte_level, sentence_pieces

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


@cache
def tokenizer(kind: str) -> Any:
    return {"byte-level": byte_level, "pieces": sentence_pieces}[kind]()


def decoder(made: Any) -> SettledDecoder:
    special = frozenset(made.token_to_id(token) for token in SPECIAL) | {0}
    of_bytes = frozenset(made.token_to_id(name) for name in BYTES) - {None}
    return SettledDecoder(made.decode, made.get_vocab_size(), special, of_bytes)


def read(made: Any, ids: list[int]) -> list[str]:
    found = decoder(made)
    return [*map(found.push, ids), found.flush()]


@pytest.mark.parametrize("kind", ["byte-level", "pieces"])
@given(data=st.data())
def test_pieces_are_the_whole(kind: str, data: st.DataObject) -> None:
    made = tokenizer(kind)
    one = st.integers(0, made.get_vocab_size() - 1)
    if kind == "pieces":  # runs of bytes are what tells the kinds apart
        of_bytes = st.sampled_from([made.token_to_id(name) for name in BYTES])
        one = st.one_of(one, of_bytes, st.sampled_from([made.token_to_id("▁")]))
    ids = data.draw(st.lists(one, max_size=80))
    assert "".join(read(made, ids)) == made.decode(ids)


@pytest.mark.parametrize("kind", ["byte-level", "pieces"])
@given(text=st.text(max_size=60))
def test_real_text_comes_without_half_a_character(kind: str, text: str) -> None:
    made = tokenizer(kind)
    ids = made.encode(text).ids
    pieces = read(made, ids)
    assert "".join(pieces) == made.decode(ids)
    assert "\ufffd" in text or not any("\ufffd" in piece for piece in pieces)


def test_text_comes_as_soon_as_it_is_certain() -> None:
    made = tokenizer("byte-level")
    ids = made.encode("ab€c", add_special_tokens=False).ids
    assert read(made, ids)[: len(ids)] == ["a", "b", "", "", "€", "c"]
    made = tokenizer("pieces")
    ids = made.encode("fox €!").ids[1:]
    pieces = read(made, ids)
    at = next(at for at, token in enumerate(ids) if made.id_to_token(token) == "<0xE2>")
    assert pieces[at : at + 3] == ["", "", ""]
    assert "".join(pieces[:at]) == "fox "


def test_a_special_token_is_no_text_and_no_first_word() -> None:
    made = tokenizer("pieces")
    end = made.token_to_id(SPECIAL[1])
    dog = made.encode("the dog").ids[1:]
    assert "".join(read(made, [end, *dog, end, *made.encode("dog").ids[1:]])) == "the dog dog"


@pytest.mark.parametrize("kind", ["byte-level", "pieces"])
@pytest.mark.parametrize("text", ["€" * 60, "a€" * 40, "𝄞 e" * 30])
def test_a_long_text_is_not_cut_within_a_character(kind: str, text: str) -> None:
    made = tokenizer(kind)
    ids = made.encode(text).ids
    assert len(ids) > 100
    assert "".join(read(made, ids)) == made.decode(ids) == text


@pytest.mark.parametrize("token", ["Ã", "e", SPECIAL[1], None])
def test_a_long_output_is_decoded_in_short_windows(token: str | None) -> None:
    """Also where no character ever ends: a client may ask for one byte, thousands of times."""
    made, longest = tokenizer("byte-level"), 0

    def decode(ids: list[int]) -> str:
        nonlocal longest
        longest = max(longest, len(ids))
        text: str = made.decode(ids)
        return text

    size = made.get_vocab_size()
    token_id = size + 5 if token is None else made.token_to_id(token)
    found = SettledDecoder(decode, size, frozenset(range(len(SPECIAL))))
    text = "".join(found.push(token_id) for _ in range(2000)) + found.flush()
    assert text == made.decode([token_id] * 2000)
    assert longest < 50
