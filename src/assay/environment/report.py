"""The environment of a run: interpreter, processor, packages, and what is wrong with them."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from typing import Any

from assay.environment.cpu import parse_cpu_features, parse_processor, read_cpuinfo
from assay.environment.known_bad import Problem, find_problems
from assay.environment.packages import Package, index_installed, read_packages
from assay.environment.strays import Stray, find_strays, list_pythonpath

__all__ = ["Environment", "read_environment"]


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What a result depends on besides the files.

    cpu_features: vector extensions; None where the system doesn't tell.
    strays: files and folders that have a package's name. problems: combinations known to be bad.
    """

    python: str
    executable: str
    platform: str
    machine: str
    processor: str
    cpu_features: tuple[str, ...] | None
    working_directory: str
    packages: tuple[Package, ...]
    strays: tuple[Stray, ...]
    problems: tuple[Problem, ...]

    @property
    def shadows(self) -> tuple[Stray, ...]:
        """The strays that are imported instead of an installed package."""
        return tuple(stray for stray in self.strays if stray.effect == "shadows")

    @property
    def is_sound(self) -> bool:
        """Does nothing shadow, and is nothing known to be bad?"""
        return not self.shadows and not self.problems

    def to_json(self) -> dict[str, Any]:
        """Plain data, fit for a certificate."""
        return {
            "python": self.python,
            "executable": self.executable,
            "platform": self.platform,
            "machine": self.machine,
            "processor": self.processor,
            "cpu_features": None if self.cpu_features is None else list(self.cpu_features),
            "working_directory": self.working_directory,
            "packages": {one.name.imported_as: one.to_json() for one in self.packages},
            "strays": [stray.to_json() for stray in self.strays],
            "problems": [problem.to_json() for problem in self.problems],
        }

    def to_versions(self) -> dict[str, str]:
        """Versions alone, by distribution; what is shadowed says so."""
        found = {"python": self.python, "machine": self.machine}
        shadows = {stray.package: stray.path for stray in self.shadows}
        for package in self.packages:
            name = package.name
            if package.version is not None:
                found[package.installed.name if package.installed else name.usual] = package.version
            if name.imported_as in shadows:
                path = shadows[name.imported_as]
                found[name.usual] = f"{package.version or 'not installed'}, shadowed by {path}"
        return found

    def to_text(self) -> str:
        """Everything for a terminal, what is wrong at the end."""
        features = "unknown" if self.cpu_features is None else " ".join(self.cpu_features)
        lines = [
            f"python {self.python} ({self.executable})",
            f"{self.platform}, {self.processor}",
            f"cpu features: {features}",
            "",
            *_tell_packages(self.packages, {stray.package for stray in self.shadows}),
        ]
        for title, told in (
            ("shadowed", [stray.to_text() for stray in self.shadows]),
            ("known to be bad", [problem.to_text() for problem in self.problems]),
            ("nearby", [s.to_text() for s in self.strays if s.effect != "shadows"]),
        ):
            if told:
                lines += ["", f"{title}:", *(f"  {line}" for line in told)]
        if self.is_sound:
            lines += ["", "nothing is shadowed, and no combination is known to be bad"]
        return "\n".join(lines)


def read_environment() -> Environment:
    """Look at this process: nothing is imported, and no file of a package runs."""
    cpuinfo = read_cpuinfo()
    installed = index_installed(sys.path)
    packages = read_packages(installed)
    here, pythonpath = _find_working_directory(), list_pythonpath(os.environ)
    strays = [
        stray
        for package in packages
        if package.name.is_used
        for stray in find_strays(package, sys.path, working_directory=here, pythonpath=pythonpath)
    ]
    return Environment(
        python=platform.python_version(),
        executable=sys.executable,
        platform=platform.platform(),
        machine=platform.machine(),
        processor=parse_processor(cpuinfo),
        cpu_features=parse_cpu_features(cpuinfo),
        working_directory=here,
        packages=packages,
        strays=tuple(strays),
        problems=find_problems(packages, installed),
    )


def _find_working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed under us
        return ""


def _tell_packages(packages: tuple[Package, ...], shadowed: set[str]) -> list[str]:
    lines = []
    for package in packages:
        version = package.version or ("no version" if package.origin else "not installed")
        origin = package.origin.path if package.origin else ""
        if package.installed is not None and package.origin is None:
            origin = "installed, but importing doesn't find it"
        mark = "  SHADOWED" if package.name.imported_as in shadowed else ""
        lines.append(f"{package.name.imported_as:<22} {version:<14} {origin}{mark}".rstrip())
    return lines
