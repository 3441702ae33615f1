"""The byte-level tokenizer, its incremental decoder, and text cut at stop strings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.text_stream import TextStream
from engine.models.sampling_params import EOS_ID
from engine.models.tokenizer import FIRST_WORD_ID, IncrementalDecoder, decode, encode

token_ids = st.lists(st.integers(0, 2000), max_size=40)


@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    assert decode(encode(text)) == text


@given(token_ids)
def test_token_by_token_gives_the_same_text_as_at_once(ids: list[int]) -> None:
    decoder = IncrementalDecoder()
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
    decoder = IncrementalDecoder()
    assert [decoder.push(byte) for byte in "a€".encode()] == ["a", "", "", "€"]


@pytest.mark.parametrize(
    ("text", "stop", "pieces", "stopped"),
    [
        ("abcd", (), ["a", "b", "c", "d"], False),
        ("abcd", ("bc",), ["a", "", ""], True),
        ("abad", ("ac",), ["", "ab", "", "ad"], False),
        ("xaab", ("ab",), ["x", "", "a", ""], True),
        ("abcd", ("d", "bcx"), ["a", "", "", "bc"], True),
        ("abcd", ("cd", "b"), ["a", ""], True),
    ],
)
def test_stop_strings_hold_text_back_only_while_they_may_come(
    text: str, stop: tuple[str, ...], pieces: list[str], stopped: bool
) -> None:
    stream = TextStream(stop)
    pushed = [stream.push(byte) for byte in text.encode()[: len(pieces)]]
    assert [piece for piece, _ in pushed] == pieces
    assert [found for _, found in pushed] == [False] * (len(pieces) - 1) + [stopped]


def test_text_that_may_not_stop_is_not_part_of_a_stop_string() -> None:
    stream = TextStream(("ab",))
    assert stream.push(ord("a"), may_stop=False) == ("a", False)
    assert stream.push(ord("b")) == ("b", False)


def test_flush_gives_what_was_held_back_and_what_was_half_decoded() -> None:
    stream = TextStream(("abc",))
    assert [stream.push(token)[0] for token in (97, 98, 0xC3)] == ["", "", ""]
    assert stream.flush() == "ab\ufffd"
    assert stream.flush() == ""


@given(token_ids, st.lists(st.text("abw", min_size=1, max_size=3), min_size=1, max_size=3))
def test_streamed_text_is_the_text_before_the_first_stop_string(
    ids: list[int], stop: list[str]
) -> None:
    stream, text, found = TextStream(tuple(stop)), "", False
    for token_id in ids:
        piece, found = stream.push(token_id)
        text += piece
        if found:
            break
    text += "" if found else stream.flush()
    whole = decode(ids)
    assert whole.startswith(text)
    assert not any(string in text for string in stop)
    assert found or text == whole
