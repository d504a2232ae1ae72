"""What a folder's files hash to, and which files count.

Every file counts but those that nobody computes with (`IGNORED`). Two JSON files are hashed without
what `assay tune` writes into them, so that tuning, which changes no number, voids nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from assay.errors import RuntimeFolderError, UnjudgedError

__all__ = [
    "CERTIFICATE_FILE",
    "HASHED_WITHOUT",
    "IGNORED",
    "hash_file",
    "list_files",
    "require_covered",
    "snapshot_folder",
]

CERTIFICATE_FILE = "parity.json"
# Patterns of names in lower case; also everything in a folder whose name begins with a dot.
IGNORED = (
    CERTIFICATE_FILE, "tune.json", ".*", "*.md", "*.html", "license*", "notice*",
    "*.png", "*.jpg", "*.jpeg", "*.gif", "*.svg",
)  # fmt: skip
_SESSION_OPTIONS = "/model/decoder/session_options"
# JSON pointers (RFC 6901) that are taken out before hashing, and objects that this leaves empty.
HASHED_WITHOUT = {
    "genai_config.json": (
        f"{_SESSION_OPTIONS}/intra_op_num_threads",
        f"{_SESSION_OPTIONS}/session.intra_op.allow_spinning",
        f"{_SESSION_OPTIONS}/session.dynamic_block_base",
    ),
    "manifest.json": ("/files/genai_config.json", "/files/tune.json"),
}
_READ_BYTES = 8 << 20
_MAX_JSON_BYTES = 64 << 20

Snapshot = dict[str, tuple[int, int]]


def list_files(folder: Path) -> tuple[list[str], list[str]]:
    """The names that count and those that are ignored, relative, with slashes, sorted.

    Links to files are followed, as a download cache has them; links to folders aren't.
    """
    counted: list[str] = []
    ignored: list[str] = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in names:
            path = Path(place, name)
            if _is_regular(path):
                relative = path.relative_to(folder).as_posix()
                (ignored if _is_ignored(name) else counted).append(relative)
    return sorted(counted), sorted(ignored)


def snapshot_folder(folder: Path) -> Snapshot:
    """Size and time of change of every file that counts; equal before and after: untouched."""
    snapshot: Snapshot = {}
    for name in list_files(folder)[0]:
        with contextlib.suppress(OSError):  # it has just gone: it isn't there
            found = os.stat(folder / name)
            snapshot[name] = (found.st_size, found.st_mtime_ns)
    return snapshot


def hash_file(folder: Path, name: str) -> dict[str, Any]:
    """The entry of one file: sha256 with size_bytes, or with the pointers it was hashed without.

    JSON is hashed in its canonical form: sorted keys, no spaces, UTF-8. A file that isn't JSON, or
    has a key twice, is hashed as it is, pointers or not.
    Raises UnjudgedError where it can't be read.
    """
    path = folder / name
    try:
        pointers = HASHED_WITHOUT.get(name)
        if pointers and os.stat(path).st_size <= _MAX_JSON_BYTES:
            canonical = _canonicalize(path.read_bytes(), pointers)
            if canonical is not None:
                digest = hashlib.sha256(canonical).hexdigest()
                return {"sha256": digest, "without": list(pointers)}
        return {"size_bytes": os.stat(path).st_size, "sha256": _hash_bytes(path)}
    except OSError as exc:
        raise UnjudgedError(
            str(path),
            f"it can't be read ({exc.strerror or exc})",
            next_step="Make the file readable, and try again.",
        ) from exc


def require_covered(folder: Path, names: Iterable[str]) -> None:
    """Raise RuntimeFolderError where a model reads a file that isn't among `names`.

    Weights outside of the folder, or under an ignored name, would decide what is computed and
    could change without a trace.
    """
    known = set(names)
    read = dict.fromkeys(_list_graphs(folder / "genai_config.json"), "genai_config.json")
    for graph in sorted(name for name in known if name.endswith(".onnx")):
        for location in _list_locations(folder / graph):
            place = os.path.normpath(os.path.join(os.path.dirname(graph), location))
            read[Path(place).as_posix()] = graph
    for name in sorted(set(read) - known):
        raise RuntimeFolderError(
            str(folder / read[name]),
            f"it reads {name}, which isn't a file of this folder that a certificate covers",
            next_step="Put it beside the graph, under a name of its own.",
        )


def _list_graphs(config: Path) -> set[str]:
    """The graphs that a genai_config.json names; none where it can't be read."""
    try:
        model = json.loads(config.read_bytes())["model"]
        parts = [part for part in model.values() if isinstance(part, dict)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return set()
    names = {part.get("filename") for part in parts}
    return {Path(os.path.normpath(name)).as_posix() for name in names if isinstance(name, str)}


def _list_locations(graph: Path) -> set[str]:
    """The files of a graph's external weights, as it names them; none where it isn't a graph."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        proto = onnx.load(str(graph), load_external_data=False)
    except DecodeError:
        return set()
    return {
        entry.value
        for tensor in _list_tensors(proto.graph)
        for entry in tensor.external_data
        if entry.key == "location"
    }


def _list_tensors(graph: Any) -> Iterator[Any]:
    """Initializers and constants, those of branches and loops included."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for inner in (attribute.g, *attribute.graphs):
                yield from _list_tensors(inner)


def _is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:  # a broken link
        return False


def _is_ignored(name: str) -> bool:
    return any(fnmatchcase(name.lower(), pattern) for pattern in IGNORED)


def _hash_bytes(path: Path) -> str:
    digest, buffer = hashlib.sha256(), bytearray(_READ_BYTES)
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(memoryview(buffer)[:count])
    return digest.hexdigest()


def _canonicalize(content: bytes, pointers: Iterable[str]) -> bytes | None:
    """Canonical JSON without what the pointers name; None where it isn't JSON, or is ambiguous."""
    try:
        value = json.loads(
            content.decode("utf-8"), object_pairs_hook=_refuse_twins, parse_constant=_refuse
        )
        for pointer in pointers:
            _take_out(value, pointer.split("/")[1:])
        text = json.dumps(
            value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
        return text.encode("utf-8")
    except (ValueError, RecursionError):
        return None


def _take_out(value: Any, keys: list[str]) -> None:
    """Delete what the keys lead to, and what that leaves empty."""
    key, *rest = keys
    if not isinstance(value, dict) or key not in value:
        return
    if rest:
        _take_out(value[key], rest)
    if not rest or value[key] == {}:
        del value[key]


def _refuse_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key comes twice")
    return value


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} isn't JSON")
