"""Let griffe, which reads the sources for the API pages, see folders without an ``__init__.py``."""

from pathlib import Path
from typing import Any

from griffe import Extension, GriffeLoader, Module, visit


class PlainFolders(Extension):
    """Adds the modules of such folders to their package, as Python does; griffe leaves them out."""

    def on_package(self, *, pkg: Module, loader: GriffeLoader, **_: Any) -> None:
        """Add what a package lacks, once it is loaded."""
        if isinstance(pkg.filepath, Path):
            _add(pkg, pkg.filepath.parent, loader)


def _add(package: Module, folder: Path, loader: GriffeLoader) -> None:
    for path in sorted(folder.iterdir()):
        if path.is_dir() and path.name.isidentifier() and not path.name.startswith("_"):
            if path.name not in package.members:
                package.set_member(path.name, _folder(path, package, loader))
            found = package.members[path.name]
            if isinstance(found, Module):
                _add(found, path, loader)
        elif path.suffix == ".py" and path.stem not in {*package.members, "__init__"}:
            package.set_member(path.stem, _module(path.stem, path, package, loader))


def _folder(path: Path, package: Module, loader: GriffeLoader) -> Module:
    init = path / "__init__.py"
    if init.exists():
        return _module(path.name, init, package, loader)
    return Module(path.name, filepath=[path], parent=package)


def _module(name: str, path: Path, package: Module, loader: GriffeLoader) -> Module:
    return visit(
        name,
        filepath=path,
        code=path.read_text(),
        extensions=loader.extensions,
        parent=package,
        lines_collection=loader.lines_collection,
        modules_collection=loader.modules_collection,
    )
