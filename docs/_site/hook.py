"""What MkDocs does beside turning pages into HTML.

The reference is generated, never written; diagrams become part of their page; the first use of a
term leads to the glossary; and every link of the finished site is checked.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import diagram
from api_page import api_page
from columns_page import columns_page
from commands_page import commands_page
from conformance_page import conformance_page
from evidence_page import evidence_page
from glossary_links import with_links
from link_check import wrong_links
from metrics_page import metrics_page
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from notebook_page import PAGE as NOTEBOOK
from notebook_page import notebook_assets, notebook_page
from plugins_page import plugins_page
from presets_page import presets_page
from scenario_page import scenario_page
from techniques_page import techniques_page
from what_if import what_if_assets

_ROOT = Path(__file__).parents[2]
_PAGES: dict[str, Callable[[], str]] = {
    "reference/command-line.md": commands_page,
    "reference/scenario.md": scenario_page,
    "reference/plug-ins.md": plugins_page,
    "reference/techniques.md": techniques_page,
    "reference/presets.md": presets_page,
    "reference/columns.md": columns_page,
    "reference/metrics.md": metrics_page,
    "reference/evidence.md": evidence_page,
    "reference/conformance.md": conformance_page,
    "reference/python-api.md": api_page,
    "all-pages.md": (_ROOT / "docs/README.md").read_text,
    "contributing.md": (_ROOT / "CONTRIBUTING.md").read_text,
    "changelog.md": (_ROOT / "CHANGELOG.md").read_text,
}
_GLOSSARY = "glossary.md"
_WITHOUT_TERMS = re.compile(r"reference/|(glossary|all-pages|changelog|third-party-licences)\.md")
"""Pages whose words are not linked: they explain, list, or are generated from the code."""
_DIAGRAM = re.compile(rf"!\[[^\]]*\]\((?:\.\./)*images/({'|'.join(diagram.names())})\.svg\)")
_log = get_plugin_logger("servetwin")


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages, and those that stand at the root of the repository."""
    for path, content in _PAGES.items():
        files.append(File.generated(config, path, content=content()))
    for path, asset in {**notebook_assets(), **what_if_assets()}.items():
        files.append(File.generated(config, path, content=asset))
    return files


def on_page_markdown(markdown: str, page: Page, files: Files, **_: Any) -> str:
    """Run the notebook, turn links to CONTRIBUTING.md into links to its page, and draw diagrams."""
    if page.file.src_uri == NOTEBOOK:
        return notebook_page()
    markdown = markdown.replace("](docs/", "](")
    markdown = re.sub(r"\]\(((?:\.\./)*)\.\./CONTRIBUTING\.md\)", r"](\1contributing.md)", markdown)

    def address(path: str) -> str:
        return _address(path, page, files)

    def drawn(found: re.Match[str]) -> str:
        return f'<figure class="diagram">\n{diagram.draw(found[1], address)}</figure>'

    return _DIAGRAM.sub(drawn, markdown)


def on_page_content(html: str, page: Page, files: Files, **_: Any) -> str:
    """Lead from the first use of each term to the glossary."""
    if _WITHOUT_TERMS.match(page.file.src_uri):
        return html
    return with_links(html, _address(_GLOSSARY, page, files))


def on_post_page(output: str, **_: Any) -> str:
    """Give the search, which the theme makes a dialog, a name for screen readers."""
    return output.replace('role="dialog">', 'role="dialog" aria-label="Search">')


def on_post_build(config: Any) -> None:
    """Check the links of all pages; in a strict build a wrong one is an error."""
    for line in wrong_links(Path(config.site_dir).resolve()):
        _log.warning(line)


def _address(path: str, page: Page, files: Files) -> str:
    """Return the address of a page, from that of another."""
    found = files.get_file_from_path(path)
    if found is None:
        raise ValueError(f"{page.file.src_uri} leads to {path}, which is no page")
    return found.url_relative_to(page.file)
