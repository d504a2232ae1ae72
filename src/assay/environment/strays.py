"""Files and folders that have a package's name: which of them shadow the installed one.

`python -m assay` and `python -c` put the working directory first on sys.path, the command `assay`
doesn't; so the same folder shadows in one and not in the other. Both are told.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from assay.environment.origins import Origin, find_origins_on_path, is_inside, is_same_place
from assay.environment.packages import Package

__all__ = ["Stray", "find_strays", "list_pythonpath"]

Effect = Literal["shadows", "would_shadow", "harmless"]
_UNTIL = "`python -m` and `python -c` put the working directory first on the path"


@dataclass(frozen=True)
class Stray:
    """Something that has a package's name and isn't the installed package.

    effect: "shadows", it is what gets imported now; "would_shadow", it lies in the working
    directory and isn't on the path now, but would be imported under `python -m` or `python -c`;
    "harmless", Python prefers the installed package.
    """

    package: str
    path: str
    effect: Effect
    found: str
    next_step: str

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    def to_text(self) -> str:
        """What it is, and what to do."""
        return f"{self.path}: {self.found}. {self.next_step}".rstrip()


def find_strays(
    package: Package,
    path: Sequence[str],
    *,
    working_directory: str,
    pythonpath: Sequence[str] = (),
) -> tuple[Stray, ...]:
    """Everything on a path and in the working directory that has the package's name.

    path: sys.path of this process. pythonpath: its entries that PYTHONPATH brought.
    What comes after the installed package on the path is left out.
    """
    seen = _Search(package, path, working_directory, pythonpath)
    strays = []
    if seen.winner is not None and seen.is_stray(seen.winner):
        strays.append(seen.describe_winner(seen.winner))
    elif seen.winner is not None and seen.hides_another(seen.winner):
        strays.append(seen.describe_copy(seen.winner))
    for origin in seen.others:
        stray = seen.describe_other(origin)
        if stray is not None:
            strays.append(stray)
    return tuple(strays)


def list_pythonpath(environment: Mapping[str, str]) -> list[str]:
    """The folders that PYTHONPATH brought; an empty part means the working directory."""
    value = environment.get("PYTHONPATH", "")
    if not value or sys.flags.ignore_environment:
        return []
    return [part or os.curdir for part in value.split(os.pathsep)]


class _Search:
    """What was found for one package: the winner, and what lies before it or in the folder."""

    def __init__(
        self, package: Package, path: Sequence[str], here: str, pythonpath: Sequence[str]
    ) -> None:
        self._package = package
        self._here = here
        self._pythonpath = pythonpath
        self._is_here_on_path = any(is_same_place(entry, here) for entry in path)
        name = package.name.imported_as
        on_path = find_origins_on_path(name, path)
        self._has_regular = any(origin.kind != "namespace" for origin in on_path)
        in_front = [] if self._is_here_on_path else find_origins_on_path(name, [here])
        for origin in on_path:
            if self._is_home(origin):
                break
            in_front.append(origin)
        self.winner = self._place(package.origin, on_path)
        self.others = [
            origin
            for origin in in_front
            if self.winner is None or not is_same_place(origin.path, self.winner.path)
        ]

    def is_stray(self, origin: Origin) -> bool:
        """Isn't it the installed package? A source tree on the path, with none installed, isn't."""
        if self._package.installed is None:
            return origin.kind == "namespace"
        return self._package.home is not None and not self._is_home(origin)

    def hides_another(self, origin: Origin) -> bool:
        """Is it a whole install that PYTHONPATH or the working directory puts before another?

        One site-packages before another (a user's before the system's) is how Python is meant.
        """
        by_hand = (*self._pythonpath, self._here)
        return bool(self._package.hidden) and any(
            is_same_place(origin.entry, entry) for entry in by_hand
        )

    def describe_copy(self, origin: Origin) -> Stray:
        """An install before another install."""
        name, hidden = self._package.name.imported_as, self._package.hidden[0]
        found = (
            f"this copy, version {self._package.version}, is imported instead of the installed "
            f"{hidden.name} {hidden.version} ({hidden.installed_in}), because "
            f"{self._tell_why(origin)}"
        )
        return Stray(name, origin.folder, "shadows", found, self._advise(origin))

    def describe_winner(self, origin: Origin) -> Stray:
        """What is imported instead of the installed package."""
        installed, name = self._package.installed, self._package.name
        if installed is None:
            found = (
                f"{name.usual} isn't installed, and `import {name.imported_as}` finds this folder: "
                "it succeeds, with nothing inside"
            )
        else:
            found = (
                f"this {_call(origin)} is imported instead of the installed "
                f"{installed.name} {installed.version} ({self._package.home}), because "
                f"{self._tell_why(origin)}"
            )
        return Stray(name.imported_as, origin.folder, "shadows", found, self._advise(origin))

    def describe_other(self, origin: Origin) -> Stray | None:
        """What isn't imported now."""
        installed, name = self._package.installed, self._package.name
        in_folder = not self._is_here_on_path and is_same_place(origin.entry, self._here)
        wins = origin.kind != "namespace" or not self._has_regular
        if in_folder and wins and (installed is not None or origin.kind == "namespace"):
            told = f"the installed {name.usual}" if installed else "nothing"
            found = (
                f"it isn't imported now, but {_UNTIL}, and there this {_call(origin)} would be "
                f"imported instead of {told}"
            )
            advice = "Rename it, or keep to the command `assay` in this folder."
            return Stray(name.imported_as, origin.folder, "would_shadow", found, advice)
        if origin.kind == "namespace" and self._has_regular:
            found = (
                f"this folder has the name of {name.usual} but no __init__.py: harmless, Python "
                "prefers the installed package wherever it comes on the path"
            )
            return Stray(name.imported_as, origin.folder, "harmless", found, "")
        return None

    def _is_home(self, origin: Origin) -> bool:
        home = self._package.home
        return home is not None and is_inside(origin.path, home)

    def _place(self, origin: Origin | None, on_path: Sequence[Origin]) -> Origin | None:
        """The origin with the entry of the path that it came by."""
        if origin is None:
            return None
        return next((one for one in on_path if is_same_place(one.path, origin.path)), origin)

    def _tell_why(self, origin: Origin) -> str:
        if any(is_same_place(origin.entry, entry) for entry in self._pythonpath):
            return f"PYTHONPATH puts {origin.entry or self._here} first"
        if is_same_place(origin.entry, self._here):
            return _UNTIL
        return f"{origin.entry or 'another finder'} comes first on the path"

    def _advise(self, origin: Origin) -> str:
        if any(is_same_place(origin.entry, entry) for entry in self._pythonpath):
            return "Take the folder out of PYTHONPATH, or rename it."
        if is_same_place(origin.entry, self._here):
            return "Rename it, run in another folder, or call `assay` and not `python -m assay`."
        return "Rename or remove it."


def _call(origin: Origin) -> str:
    return "file" if origin.kind == "module" else "folder"
