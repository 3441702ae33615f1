"""What MkDocs does beside turning pages into HTML: the reference is generated, never written."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from columns_page import columns_page
from commands_page import commands_page
from metrics_page import metrics_page
from mkdocs.structure.files import File, Files
from plugins_page import plugins_page
from scenario_page import scenario_page
from techniques_page import techniques_page

_ROOT = Path(__file__).parents[2]
_PAGES: dict[str, Callable[[], str]] = {
    "reference/command-line.md": commands_page,
    "reference/scenario.md": scenario_page,
    "reference/plug-ins.md": plugins_page,
    "reference/techniques.md": techniques_page,
    "reference/columns.md": columns_page,
    "reference/metrics.md": metrics_page,
    "contributing.md": (_ROOT / "CONTRIBUTING.md").read_text,
    "changelog.md": (_ROOT / "CHANGELOG.md").read_text,
}


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages, and those that stand at the root of the repository."""
    for path, content in _PAGES.items():
        files.append(File.generated(config, path, content=content()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Turn links to CONTRIBUTING.md of the repository into links to its page, and back."""
    markdown = markdown.replace("](docs/", "](")
    return re.sub(r"\]\(((?:\.\./)*)\.\./CONTRIBUTING\.md\)", r"](\1contributing.md)", markdown)
