"""Loading of model folders, each of which registers one spec.

A folder that can't be used is broken, which is another thing than not supported: it is warned of
here, asking for its type raises BrokenSpecError, and the others work.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Iterable, Iterator

from assay.spec.registry import get_specs, mark_broken

__all__ = ["load_specs"]


def load_specs(package: str, paths: Iterable[str]) -> None:
    """Import `specs` of every folder in a package, so that each registers its type.

    paths: the package's folders on disk. Folders that begin with a dot or an underscore are no
    model types.
    """
    for name, folder in _find_folders(paths):
        _load(package, name, folder)


def _find_folders(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    for path in paths:
        for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
            if entry.is_dir() and not entry.name.startswith((".", "_")):
                yield entry.name, entry.path


def _load(package: str, name: str, folder: str) -> None:
    module = f"{package}.{name}.specs"
    file = os.path.join(folder, "specs.py")
    if module in sys.modules:
        return
    before = _registered()
    try:
        if not os.path.isfile(file):
            raise FileNotFoundError("it isn't there")
        importlib.import_module(module)
        _check_registered(_registered() - before, name)
    except Exception as reason:  # noqa: BLE001  (whatever is wrong with a file is that file's)
        sys.modules.pop(module, None)
        error = mark_broken(
            name, _locate(reason, folder, file), _describe(reason), _registered() - before
        )
        error.__cause__ = reason
        warnings.warn(f"assay: {error.where}: {error.found}", stacklevel=4)


def _registered() -> set[str]:
    return {spec.model_type for spec in get_specs()}


def _check_registered(new: set[str], name: str) -> None:
    if new != {name}:
        found = ", ".join(sorted(new)) or "nothing"
        raise ValueError(f"it registers {found}, and should register {name}, as its folder says")


def _describe(reason: Exception) -> str:
    text = reason.msg if isinstance(reason, SyntaxError) else str(reason)
    return f"{type(reason).__name__}: {text}"


def _locate(reason: Exception, folder: str, file: str) -> str:
    """The file and line at fault: of a syntax error its own, else the last one of the folder."""
    if isinstance(reason, SyntaxError) and reason.filename:
        return f"{reason.filename}:{reason.lineno}"
    where, traceback = file, reason.__traceback__
    while traceback is not None:
        name = traceback.tb_frame.f_code.co_filename
        if name.startswith(folder + os.sep):
            where = f"{name}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return where
