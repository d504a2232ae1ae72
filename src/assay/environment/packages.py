"""The packages that take part: their versions, and where they are and would be imported from."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse
from urllib.request import url2pathname

from assay.environment.origins import Origin, find_origin
from assay.environment.requirements import normalize
from assay.version import __version__

__all__ = ["PACKAGES", "Installed", "Package", "index_installed", "read_packages"]


@dataclass(frozen=True)
class PackageName:
    """A package by the name it is imported by.

    usual: the distribution that provides it. distributions: a pattern of normalized names that may
    provide it as well, if they own its __init__.py. is_used: does assay run it? Else it is a peer,
    told of for the record.
    """

    imported_as: str
    usual: str
    distributions: str = ""
    is_used: bool = True

    def matches(self, distribution: str) -> bool:
        """May a distribution of this name provide it?"""
        name = normalize(distribution)
        return name == self.usual or bool(re.fullmatch(self.distributions or "(?!)", name))


PACKAGES = (
    PackageName("assay", "assay"),
    PackageName("onnxruntime", "onnxruntime", r"(onnxruntime|ort-nightly)(-[a-z0-9-]+)?"),
    PackageName("onnxruntime_genai", "onnxruntime-genai", r"onnxruntime-genai(-[a-z0-9-]+)?"),
    PackageName("onnx", "onnx", r"onnx(-weekly)?"),
    PackageName("onnx_ir", "onnx-ir"),
    PackageName("numpy", "numpy"),
    PackageName("ml_dtypes", "ml-dtypes"),
    PackageName("numba", "numba"),
    PackageName("llvmlite", "llvmlite"),
    PackageName("tokenizers", "tokenizers"),
    PackageName("gguf", "gguf"),
    PackageName("tqdm", "tqdm"),
    PackageName("torch", "torch"),
    PackageName("transformers", "transformers"),
    PackageName("accelerate", "accelerate"),
    PackageName("safetensors", "safetensors"),
    PackageName("huggingface_hub", "huggingface-hub"),
    PackageName("onnxruntime_extensions", "onnxruntime-extensions", is_used=False),
    PackageName("mobius", "mobius-onnx", is_used=False),
    PackageName("optimum", "optimum", is_used=False),
    PackageName("olive", "olive-ai", is_used=False),
)


@dataclass(frozen=True)
class Installed:
    """A distribution as its metadata has it. installed_in: site-packages, or a project's folder."""

    name: str
    version: str
    installed_in: str
    is_editable: bool
    distribution: metadata.Distribution

    def owns(self, file: str) -> bool:
        """Does its record list this file? False where it keeps no record."""
        return any(str(path) == file for path in self.distribution.files or ())


@dataclass(frozen=True)
class Package:
    """One package that takes part.

    candidates: every installed distribution that provides it (two onnxruntimes, for one).
    origin: where importing it leads; None where it can't be imported.
    hidden: the first candidate's other copies, in folders that come later on the path.
    """

    name: PackageName
    candidates: tuple[Installed, ...]
    origin: Origin | None
    hidden: tuple[Installed, ...] = ()

    @property
    def installed(self) -> Installed | None:
        """The first distribution that provides it."""
        return self.candidates[0] if self.candidates else None

    @property
    def version(self) -> str | None:
        """Of the installed distribution; assay knows its own also from a source tree."""
        if self.installed is not None:
            return self.installed.version
        return __version__ if self.name.imported_as == "assay" else None

    @property
    def home(self) -> str | None:
        """The folder or file that the distribution was installed as; None where unknown."""
        if self.installed is None:
            return None
        if self.installed.is_editable:
            return self.installed.installed_in
        place = os.path.join(self.installed.installed_in, self.name.imported_as)
        return next((p for p in (place, f"{place}.py") if os.path.exists(p)), None)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "distribution": self.installed.name if self.installed else None,
            "version": self.version,
            "imported_from": self.origin.path if self.origin else None,
            "installed_at": self.home,
        }


def index_installed(path: Sequence[str]) -> dict[str, list[Installed]]:
    """Every distribution on a path by its normalized name; of two versions the first counts."""
    found: dict[str, list[Installed]] = {}
    for distribution in metadata.distributions(path=list(path)):
        name = distribution.metadata["Name"]
        if name and distribution.version:
            found.setdefault(normalize(name), []).append(_describe(name, distribution))
    return found


def read_packages(installed: Mapping[str, Sequence[Installed]]) -> tuple[Package, ...]:
    """Every package that assay uses, also where it is missing, and the peers that are there."""
    packages = []
    for name in PACKAGES:
        origin = find_origin(name.imported_as)
        candidates = _find_candidates(name, installed)
        if name.is_used or candidates or origin is not None:
            copies = installed[normalize(candidates[0].name)] if candidates else ()
            packages.append(Package(name, candidates, origin, tuple(copies[1:])))
    return tuple(packages)


def _find_candidates(
    name: PackageName, installed: Mapping[str, Sequence[Installed]]
) -> tuple[Installed, ...]:
    """The distributions that provide a package, the usual one first."""
    names = sorted(filter(name.matches, installed), key=lambda n: (n != name.usual, n))
    found = [installed[n][0] for n in names]
    init = f"{name.imported_as}/__init__.py"
    return tuple(d for d in found if normalize(d.name) == name.usual or d.owns(init))


def _describe(name: str, distribution: metadata.Distribution) -> Installed:
    project = _find_project(distribution)
    place = project or str(distribution.locate_file(""))
    return Installed(name, distribution.version, place, project is not None, distribution)


def _find_project(distribution: metadata.Distribution) -> str | None:
    """The project's folder of an editable install; None for an ordinary one."""
    try:
        record = json.loads(distribution.read_text("direct_url.json") or "{}")
        if not record.get("dir_info", {}).get("editable"):
            return None
        address = urlparse(record["url"])
    except (ValueError, KeyError, AttributeError, OSError):
        return None
    return str(Path(url2pathname(unquote(address.path)))) if address.scheme == "file" else None
