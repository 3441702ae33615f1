"""Write the page of third-party licences (``make licences``).

``python docs/_site/licences.py PAGE`` writes it to PAGE.

The licences are those that pip-licenses reads from the installed packages that the product needs,
directly or through others; tools for tests and development are left out.
"""

import json
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from markdown_table import table
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]

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


def needed() -> set[str]:
    """Return the packages that the product needs on this system, directly or through others."""
    found = set[str]()
    waiting = _own_requirements()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name not in found:
            found.add(name)
            waiting += _requirements(name, requirement.extras)
    return found


def _own_requirements() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *(line for extra in _EXTRAS for line in extras[extra])]
    return _that_hold(lines, set())


def _requirements(name: str, extras: set[str]) -> list[Requirement]:
    try:
        return _that_hold(requires(name) or [], extras)
    except PackageNotFoundError:
        return []


def _that_hold(lines: list[str], extras: set[str]) -> list[Requirement]:
    """Return the requirements whose conditions hold here, with some of the extras or without."""
    found = map(Requirement, lines)
    return [
        one
        for one in found
        if one.marker is None or any(one.marker.evaluate({"extra": e}) for e in ("", *extras))
    ]


def page() -> str:
    """Return the page in Markdown."""
    options = ("--from=mixed", "--with-system", "--format=json")
    command = [sys.executable, "-m", "piplicenses", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    keep = needed()
    rows = [
        (row["Name"], row["Version"], row["License"].partition("\n")[0])
        for row in json.loads(done.stdout)
        if canonicalize_name(row["Name"]) in keep
    ]
    installed = table(("package", "version", "licence"), rows)
    return _HEAD + "\n" + installed + _SITE + table(("package", "what", "licence"), _IN_THE_SITE)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
