"""manifest.json: what was written, from what, by which versions, with which options."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from assay.blocks.initializers import Initializer, QuantizedMatrix, QuantizedPart
from assay.version import __version__

__all__ = ["MANIFEST_FILE", "SCHEMA_VERSION", "build_manifest", "hash_file", "write_json"]

MANIFEST_FILE = "manifest.json"
SCHEMA_VERSION = 1
_PACKAGES = (
    "numpy",
    "numba",
    "onnx-ir",
    "onnxruntime",
    "onnxruntime-genai",
    "tokenizers",
    "gguf",
)


def build_manifest(
    folder: Path,
    initializers: Iterable[Initializer],
    *,
    source: Mapping[str, Any],
    options: Mapping[str, Any],
    load_once: Mapping[str, Any],
    verification: str,
) -> dict[str, Any]:
    """Return the manifest of a finished folder: every file with its size and hash.

    verification: what was decided about judging the folder when it was written.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        "schema_version": SCHEMA_VERSION,
        "source": dict(source),
        "options": dict(options),
        "versions": _find_versions(),
        "weights": _describe_weights(initializers),
        "load_once": dict(load_once),
        "verification": verification,
        "files": {
            path.relative_to(folder).as_posix(): {
                "size_bytes": path.stat().st_size,
                "sha256": hash_file(path),
            }
            for path in files
        },
    }


def hash_file(path: Path) -> str:
    """Return a file's SHA-256, read in pieces."""
    digest, buffer = hashlib.sha256(), bytearray(1 << 20)
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(memoryview(buffer)[:count])
    return digest.hexdigest()


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write an object as indented JSON."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _find_versions() -> dict[str, str | None]:
    versions: dict[str, str | None] = {
        "python": platform.python_version(),
        "assay": __version__,  # which a source tree has too, though it isn't installed
    }
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    return versions


def _describe_weights(initializers: Iterable[Initializer]) -> dict[str, Any]:
    """Say of every quantized matrix which rows of which tensors it was rounded from."""
    described: dict[str, Any] = {}
    for initializer in initializers:
        if isinstance(initializer, QuantizedPart):
            entry = described.setdefault(initializer.matrix.name, _describe(initializer.matrix))
            entry["initializers"].setdefault(initializer.part, initializer.name)
    return described


def _describe(matrix: QuantizedMatrix) -> dict[str, Any]:
    return {
        "kind": matrix.kind,
        "bits": matrix.grid.bits,
        "group_size": matrix.grid.group_size,
        "symmetric": matrix.grid.symmetric,
        "inputs": matrix.inputs,
        "initializers": {} if not matrix.grid.symmetric else {"zero_points": None},
        "parts": [
            {
                "tensor": source.path,
                "file_tensor": source.tensor,
                "rows": [[start, stop, 1] for start, stop in source.rows],
                "transposed": source.transposed,
            }
            for source in matrix.sources
        ],
    }
