"""The text of an output: what is held back for stop strings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.engine.text.byte_tokenizer import ByteDecoder
from servetwin.engine.text.text_stream import TextStream
from tests.support.whole_text import decode

token_ids = st.lists(st.integers(0, 2000), max_size=40)


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
    stream = TextStream(ByteDecoder(), stop)
    pushed = [stream.push(byte) for byte in text.encode()[: len(pieces)]]
    assert [piece for piece, _ in pushed] == pieces
    assert [found for _, found in pushed] == [False] * (len(pieces) - 1) + [stopped]


def test_text_that_may_not_stop_is_not_part_of_a_stop_string() -> None:
    stream = TextStream(ByteDecoder(), ("ab",))
    assert stream.push(ord("a"), may_stop=False) == ("a", False)
    assert stream.push(ord("b")) == ("b", False)


def test_flush_gives_what_was_held_back_and_what_was_half_decoded() -> None:
    stream = TextStream(ByteDecoder(), ("abc",))
    assert [stream.push(token)[0] for token in (97, 98, 0xC3)] == ["", "", ""]
    assert stream.flush() == "ab\ufffd"
    assert stream.flush() == ""


@given(token_ids, st.lists(st.text("abw", min_size=1, max_size=3), min_size=1, max_size=3))
def test_streamed_text_is_the_text_before_the_first_stop_string(
    ids: list[int], stop: list[str]
) -> None:
    stream, text, found = TextStream(ByteDecoder(), tuple(stop)), "", False
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
