"""The byte-level tokenizer, its incremental decoder, and text cut at stop strings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.engine.sampling.sampling_params import EOS_ID
from servetwin.engine.text.byte_tokenizer import FIRST_WORD_ID, ByteDecoder, ByteTokenizer
from tests.support.whole_text import decode

token_ids = st.lists(st.integers(0, 2000), max_size=40)


@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    assert decode(ByteTokenizer().encode(text)) == text


@given(token_ids)
def test_token_by_token_gives_the_same_text_as_at_once(ids: list[int]) -> None:
    decoder = ByteDecoder()
    pieces = [decoder.push(token_id) for token_id in ids]
    assert "".join(pieces) + decoder.flush() == decode(ids)


@given(st.lists(st.integers(FIRST_WORD_ID, 2000), max_size=20))
def test_words_are_unique_per_id(ids: list[int]) -> None:
    words = decode(ids).split(" w")[1:]
    assert [int(word) for word in words] == ids


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        ([], ""),
        ([104, 105], "hi"),
        ([0xC3, 0xA9], "é"),
        ([0xC3], "\ufffd"),
        ([0xFF, 104], "\ufffdh"),
        ([EOS_ID], ""),
        ([257, 258], ""),
        ([104, EOS_ID, 105], "hi"),
        ([0xC3, 300, 0xA9], "\ufffd w300\ufffd"),
        ([300, 104, 301], " w300h w301"),
    ],
)
def test_decoding_table(ids: list[int], text: str) -> None:
    assert decode(ids) == text


def test_a_character_comes_with_its_last_byte() -> None:
    decoder = ByteDecoder()
    assert [decoder.push(byte) for byte in "a€".encode()] == ["a", "", "", "€"]
