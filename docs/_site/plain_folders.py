"""Let griffe, which reads the sources for the API pages, see folders without an ``__init__.py``."""

from pathlib import Path
from typing import Any

from griffe import Extension, GriffeLoader, Module, visit

_BESIDE = ("app", "engine", "loadtest", "policies", "sim", "workloads")


class PlainFolders(Extension):
    """Adds the modules of such folders to their package, as Python does; griffe leaves them out."""

    def on_package(self, *, pkg: Module, loader: GriffeLoader, **_: Any) -> None:
        """Add what a package lacks, once it is loaded; in a checkout its folders lie beside it."""
        if isinstance(pkg.filepath, Path):
            _add(pkg, pkg.filepath.parent, loader)
            for name in _BESIDE if pkg.name == "servetwin" else ():
                _add_folder(pkg, pkg.filepath.parents[1] / name, loader)


def _add(package: Module, folder: Path, loader: GriffeLoader) -> None:
    for path in sorted(folder.iterdir()):
        if path.is_dir() and path.name.isidentifier() and not path.name.startswith("_"):
            _add_folder(package, path, loader)
        elif path.suffix == ".py" and path.stem != "__init__":
            module = _module(path.stem, path, package, loader)
            if path.stem not in package.members:
                package.set_member(path.stem, module)
                continue
            for name in module.members.keys() & package.members.keys():
                package.set_member(name, module.members[name])  # a name hides its own module


def _add_folder(package: Module, path: Path, loader: GriffeLoader) -> None:
    if path.name not in package.members:
        package.set_member(path.name, _folder(path, package, loader))
    member = package.members[path.name]
    if isinstance(member, Module):
        _add(member, path, loader)


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
