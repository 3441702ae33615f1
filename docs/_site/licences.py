"""Write the page of third-party licences (``make licences``).

``python docs/_site/licences.py PAGE`` writes it to PAGE.

The licences are those that pip-licenses reads from the installed packages that the product needs,
directly or through others; tools for tests and development are left out.
"""

import json
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from markdown_table import table

_EXTRAS = ("engine", "fast", "app", "report", "pictures")
_HEAD = """# Third-party licences

Servetwin itself is under the MIT licence (file `LICENSE`). These packages are
installed with it, directly or through others; `make licences` writes this page anew.
"""


_SITE = """
## In the built site

`make docs` copies scripts, styles and icons of these packages into `dist/docs`. Nothing of them is
in the package that is installed.

"""
_IN_THE_SITE = (
    ("Material for MkDocs", "theme", "MIT"),
    ("Material Design Icons", "icons of the theme", "Apache-2.0"),
    ("clipboard.js, escape-html, lunr", "in the theme's scripts", "MIT"),
    ("RxJS", "in the theme's scripts", "Apache-2.0"),
    ("tslib", "in the theme's scripts", "0BSD"),
    ("focus-visible", "in the theme's scripts", "W3C"),
    ("mkdocstrings-python", "styles of the API pages", "ISC"),
)


def needed(name: str, extras: tuple[str, ...] = ()) -> set[str]:
    """Return the installed packages that ``name`` needs, with these of its extras."""
    found: set[str] = set()
    waiting = [(name, extras)]
    while waiting:
        package, wanted = waiting.pop()
        for line in _requirements(package):
            required, _, condition = line.partition(";")
            extra = re.search(r"extra == ['\"](\S+)['\"]", condition)
            normal = re.match(r"[\w.-]+", required)
            if normal is None or (extra and extra[1] not in wanted):
                continue
            key = re.sub(r"[-_.]+", "-", normal[0]).lower()
            if key not in found:
                found.add(key)
                waiting.append((key, ()))
    return found


def _requirements(package: str) -> list[str]:
    try:
        return requires(package) or []
    except PackageNotFoundError:
        return []


def page() -> str:
    """Return the page in Markdown."""
    command = [sys.executable, "-m", "piplicenses", "--from=mixed", "--format=json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    keep = needed("servetwin", _EXTRAS)
    rows = [
        (row["Name"], row["Version"], row["License"].replace("\n", " "))
        for row in json.loads(done.stdout)
        if re.sub(r"[-_.]+", "-", row["Name"]).lower() in keep
    ]
    installed = table(("package", "version", "licence"), rows)
    return _HEAD + "\n" + installed + _SITE + table(("package", "what", "licence"), _IN_THE_SITE)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
