"""The link checker finds what leads nowhere, and nothing else."""

from pathlib import Path

import pytest
from link_check import wrong_links

OTHER = '<h1 id="top">Other</h1><img src="picture.svg"><a href="index.html">back</a>'


def checked(folder: Path, link: str) -> list[str]:
    """The complaints about a site whose first page has one link."""
    (folder / "sub").mkdir()
    (folder / "picture.svg").write_text("<svg/>")
    (folder / "other page.html").write_text(OTHER)
    (folder / "sub" / "page.html").write_text('<a id="here" href="../index.html">up</a>')
    (folder / "404.html").write_text('<a href="/nowhere.html">home</a>')
    (folder / "index.html").write_text(f'<p id="p1"><a href="{link}">link</a></p>')
    return list(wrong_links(folder))


@pytest.mark.parametrize(
    "link",
    [
        "other%20page.html", "other%20page.html#top", "sub/page.html#here", "#p1", "#",
        "picture.svg", "https://example.org", "https://example.org/a?b=c#d", "http://127.0.0.1:8000/v1",
        "mailto:a@example.org", "sub/../picture.svg",
    ],
)  # fmt: skip
def test_a_link_that_leads_somewhere_is_no_problem(tmp_path: Path, link: str) -> None:
    assert checked(tmp_path, link) == []


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        ("nowhere.html", "there is no such page"),
        ("sub", "there is no such page"),
        ("sub/page.html#there", "the page has no such anchor"),
        ("#p2", "the page has no such anchor"),
        ("/picture.svg", "there is no such page"),
        ("https:/example.org", "is no address"),
        ("https://example", "is no address"),
        ("https://exa mple.org/", "is no address"),
        ("//example.org/page", "is no address"),
        ("http://[1", "Invalid IPv6 URL"),
        ("htp://example.org", "is no address"),
    ],
)
def test_a_link_that_leads_nowhere_is_named(tmp_path: Path, link: str, problem: str) -> None:
    assert checked(tmp_path, link) == [f"index.html: {link}: {problem}"]
