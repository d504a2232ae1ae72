"""Fake installs: folders with packages and their metadata, as pip would leave them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

__all__ = ["install", "put_module", "put_namespace", "put_package"]


def put_package(folder: Path, name: str, text: str = "") -> Path:
    """A regular package."""
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(text)
    return folder / name


def put_namespace(folder: Path, name: str) -> Path:
    """A folder without __init__.py."""
    (folder / name).mkdir(parents=True)
    (folder / name / "weights.bin").write_bytes(b"")
    return folder / name


def put_module(folder: Path, name: str) -> Path:
    """A file that is imported by its name."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text("")
    return folder / f"{name}.py"


def install(
    site: Path,
    distribution: str,
    version: str,
    *,
    package: str = "",
    requires: Sequence[str] = (),
    project: Path | None = None,
) -> Path:
    """Metadata of a distribution, and its package unless that is there or `project` holds it."""
    name = package or distribution.replace("-", "_")
    info = site / f"{distribution.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {distribution}", f"Version: {version}"]
    lines += [f"Requires-Dist: {line}" for line in requires]
    (info / "METADATA").write_text("\n".join(lines) + "\n")
    record = f"{info.name}/METADATA,,\n"
    if project is not None:
        address = {"url": project.as_uri(), "dir_info": {"editable": True}}
        (info / "direct_url.json").write_text(json.dumps(address))
    else:
        if not (site / name).exists():
            put_package(site, name)
        record += f"{name}/__init__.py,,\n"
    (info / "RECORD").write_text(record)
    return site
