from servetwin.engine.text.byte_tokenizer import ByteTokenizer
from servetwin.engine.text.text_stream import TokenTexts


def test_a_token_has_a_text_of_its_own() -> None:
    texts = TokenTexts(ByteTokenizer())
    assert [texts.of(token) for token in (65, 256, 300, 200, 65)] == [
        "A",
        "",
        " w300",
        "\ufffd",
        "A",
    ]
