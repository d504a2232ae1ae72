"""Where `import NAME` would find a package, and what else of that name lies on the way.

Nothing is imported. Python takes the first regular package or module on sys.path; a folder without
__init__.py (a namespace package) is taken only where the path holds nothing better, but then before
editable installs, whose finders are asked last.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from typing import Literal

__all__ = ["Origin", "find_origin", "find_origins_on_path", "is_inside", "is_same_place"]


@dataclass(frozen=True)
class Origin:
    """One place that a package could come from.

    path: the file that would run; for a namespace package its folder.
    """

    path: str
    kind: Literal["package", "module", "namespace"]
    entry: str = ""

    @property
    def folder(self) -> str:
        """What a user would rename: the package's folder, or the module's file."""
        return os.path.dirname(self.path) if self.kind == "package" else self.path


def find_origin(name: str) -> Origin | None:
    """Where `import name` gets it, or has got it, in this process; None where it fails."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return _find_loaded(name)
    return _read_spec(spec)


def find_origins_on_path(name: str, path: Sequence[str]) -> list[Origin]:
    """Every place on a path that holds `name`, in the path's order."""
    found = []
    for entry in path:
        try:
            origin = _read_spec(PathFinder.find_spec(name, [entry]), entry)
        except (ImportError, ValueError, OSError):
            continue
        if origin is not None:
            found.append(origin)
    return found


def is_same_place(first: str, second: str) -> bool:
    """Do two paths lead to the same file or folder?"""
    return _resolve(first) == _resolve(second)


def is_inside(path: str, folder: str) -> bool:
    """Is a path a folder, or within it?"""
    inner, outer = _resolve(path), _resolve(folder)
    return inner == outer or inner.startswith(outer.rstrip(os.sep) + os.sep)


def _find_loaded(name: str) -> Origin | None:
    """A module that was loaded without a spec tells its file at least."""
    file = getattr(sys.modules.get(name), "__file__", None)
    return Origin(file, _kind_of(file)) if isinstance(file, str) else None


def _read_spec(spec: ModuleSpec | None, entry: str = "") -> Origin | None:
    if spec is None:
        return None
    if spec.has_location and spec.origin:
        return Origin(os.path.abspath(spec.origin), _kind_of(spec.origin), entry)
    folders = list(spec.submodule_search_locations or ())
    if folders:
        return Origin(os.path.abspath(folders[0]), "namespace", entry)
    return None


def _kind_of(file: str) -> Literal["package", "module"]:
    return "package" if os.path.basename(file).startswith("__init__.") else "module"


def _resolve(path: str) -> str:
    try:
        return os.path.normcase(os.path.realpath(path or os.curdir))
    except OSError:  # the working directory was removed under us
        return os.path.normcase(path)
