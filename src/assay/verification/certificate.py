"""The verdict stored beside the model: parity.json, with a hash of every file that was judged.

docs/certificate.md describes it. It is a record, not a signature: it tells that the files are
those that were judged, to whom trusts the record itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn, cast

from assay.environment import read_environment
from assay.errors import UnjudgedError
from assay.verification.file_hashes import (
    CERTIFICATE_FILE,
    Snapshot,
    hash_file,
    list_files,
    require_covered,
    snapshot_folder,
)
from assay.verification.verdict import Status, Verdict
from assay.version import __version__

__all__ = [
    "CERTIFICATE_FILE",
    "SCHEMA_VERSION",
    "Certificate",
    "CertificateCheck",
    "check_certificate",
    "parse_certificate",
    "read_certificate",
    "write_certificate",
]

SCHEMA_VERSION = 1
_MAX_BYTES = 32 << 20
_STATUSES = ("pass", "fail", "unjudged")
_AGAIN = "Judge the folder again: assay verify FOLDER -r MODEL."


@dataclass(frozen=True)
class Certificate:
    """A parity.json that was read and found well formed.

    files: {name: entry}, each with sha256, and size_bytes or `without`.
    """

    status: Status
    written_at: str
    assay_version: str
    files: Mapping[str, Mapping[str, Any]]
    content: Mapping[str, Any]


@dataclass(frozen=True)
class CertificateCheck:
    """What has become of a folder since it was judged.

    status: the verdict then. changed, missing: of the files judged. new: files that count and
    weren't there. ignored: files that nobody computes with. Names are relative to the folder.
    """

    folder: str
    status: Status
    written_at: str
    changed: tuple[str, ...]
    missing: tuple[str, ...]
    new: tuple[str, ...]
    ignored: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Are the files those that were judged?"""
        return not (self.changed or self.missing or self.new)

    @property
    def exit_code(self) -> int:
        """0 it holds and the verdict was pass, 1 it is void or was fail, 2 it was unjudged."""
        if not self.holds:
            return 1
        return {"pass": 0, "fail": 1, "unjudged": 2}[self.status]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "folder": self.folder,
            "holds": self.holds,
            "verdict": self.status,
            "exit_code": self.exit_code,
            "written_at": self.written_at,
            "changed": list(self.changed),
            "missing": list(self.missing),
            "new": list(self.new),
            "ignored": list(self.ignored),
        }

    def to_text(self) -> str:
        """Whether it holds, what it says, and each file that parts from it."""
        head = "HOLDS" if self.holds else "VOID"
        said = f"the verdict of {_show(self.written_at)} was {self.status.upper()}"
        lines = [f"{head}  {self.folder}: {said}"]
        for word in ("changed", "missing", "new"):
            lines += [f"  {word:<8} {_show(name)}" for name in getattr(self, word)]
        if not self.holds:
            lines.append(_AGAIN)
        return "\n".join(lines)


def write_certificate(
    folder: str | Path, verdict: Verdict, *, before: Snapshot | None = None
) -> Path:
    """Hash the folder's files and write parity.json, all or nothing; returns its path.

    before: the folder's snapshot from before it was judged; a file that has changed since then
    was not what was judged.
    Raises OutputError where it can't be written, UnjudgedError for a file that changed or can't be
    read, RuntimeFolderError where the graph's weights lie outside of the folder.
    """
    from assay.runtime._rewrite import replace_file

    path = Path(folder)
    names, _ = list_files(path)
    require_covered(path, names)
    files = {name: hash_file(path, name) for name in names}
    after = snapshot_folder(path)
    if before is not None and before != after:
        touched = sorted(name for name, _ in set(before.items()) ^ set(after.items()))
        raise UnjudgedError(
            str(path),
            f"{', '.join(dict.fromkeys(touched))} changed while the folder was judged",
            next_step=_AGAIN,
        )
    judged = verdict.to_dict()
    judged.pop("environment", None)
    content = {
        "schema_version": SCHEMA_VERSION,
        "assay_version": __version__,
        "written_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "prompts": judged.pop("prompts", []),
        "verdict": judged,
        "files": files,
        "environment": read_environment().to_json(),
    }
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    replace_file(path / CERTIFICATE_FILE, text.encode("ascii"))
    return path / CERTIFICATE_FILE


def check_certificate(folder: str | Path) -> CertificateCheck:
    """Hash a folder's files again and hold them against its parity.json.

    Neither reference nor runtime is needed. Raises UnjudgedError where there is no certificate,
    or it can't be read, is of another schema or malformed.
    """
    path = Path(folder)
    certificate = read_certificate(path)
    names, ignored = list_files(path)
    there = set(names)
    changed = [
        name
        for name, entry in certificate.files.items()
        if name in there and not _is_unchanged(path, name, entry)
    ]
    return CertificateCheck(
        folder=str(path),
        status=certificate.status,
        written_at=certificate.written_at,
        changed=tuple(sorted(changed)),
        missing=tuple(sorted(set(certificate.files) - there)),
        new=tuple(sorted(there - set(certificate.files))),
        ignored=tuple(ignored),
    )


def read_certificate(folder: str | Path) -> Certificate:
    """Read and check a folder's parity.json; see `parse_certificate` for what is refused."""
    path = Path(folder) / CERTIFICATE_FILE
    try:
        mode, size_bytes = (found := os.stat(path)).st_mode, found.st_size
        if not stat.S_ISREG(mode):
            _refuse(path, "it isn't a file")
        if size_bytes > _MAX_BYTES:
            _refuse(path, f"it has {size_bytes:,} bytes", f"at most {_MAX_BYTES:,} bytes")
        content = path.read_bytes()
    except FileNotFoundError as exc:
        raise UnjudgedError(
            str(path.parent),
            f"there is no certificate ({CERTIFICATE_FILE})",
            next_step="Judge the folder: assay verify FOLDER -r MODEL writes one.",
        ) from exc
    except OSError as exc:
        raise UnjudgedError(
            str(path), f"it can't be read ({exc.strerror or exc})", next_step=_AGAIN
        ) from exc
    return parse_certificate(content, path)


def parse_certificate(content: bytes, where: Path) -> Certificate:
    """Read a certificate's bytes. Nothing in them is trusted: they come with a download.

    Raises UnjudgedError for what isn't JSON, another schema, values of the wrong kind, and names
    that lead out of the folder.
    """
    try:
        value = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as exc:  # bad UTF-8, absurd nesting or numbers
        raise UnjudgedError(str(where), f"it isn't JSON ({exc})", next_step=_AGAIN) from exc
    if not isinstance(value, dict):
        _refuse(where, f"it holds a JSON {type(value).__name__}", "an object")
    version = _take(where, value, "schema_version", int)
    if version != SCHEMA_VERSION or isinstance(version, bool):
        older = "an older" if version < SCHEMA_VERSION else "a newer"
        _refuse(where, f"its schema is {version}, of {older} assay", f"{SCHEMA_VERSION}")
    verdict = _take(where, value, "verdict", dict)
    status = _take(where, verdict, "verdict", str, "verdict.verdict")
    if status not in _STATUSES:
        _refuse(where, "`verdict.verdict` is none of our words", ", ".join(_STATUSES))
    _take(where, verdict, "checks", list, "verdict.checks")
    _take(where, value, "prompts", list)
    _take(where, value, "environment", dict)
    written_at = _take(where, value, "written_at", str)
    try:
        datetime.fromisoformat(written_at)
    except ValueError:
        _refuse(where, "`written_at` is no time", "ISO 8601")
    files = _take(where, value, "files", dict)
    if not files:
        _refuse(where, "`files` is empty", "the files that were judged")
    for name, entry in files.items():
        _check_entry(where, name, entry)
    version_text = _take(where, value, "assay_version", str)
    return Certificate(cast(Status, status), written_at, version_text, files, value)


def _check_entry(where: Path, name: str, entry: Any) -> None:
    parts = PurePosixPath(name).parts
    is_relative = bool(parts) and not name.startswith("/") and not {"..", "."} & set(parts)
    if not is_relative or "/".join(parts) != name or re.search(r"[\\\0]|^[A-Za-z]:", name):
        _refuse(where, f"it names {_show(name)!s}, which leads out of the folder", "plain names")
    digest = entry.get("sha256") if isinstance(entry, dict) else None
    if not isinstance(digest, str) or not re.fullmatch(r"[0-9a-f]{64}", digest):
        _refuse(where, f"{_show(name)} has no SHA-256", "`sha256`, 64 hexadecimal digits")
    size = entry.get("size_bytes", 0)
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        _refuse(where, f"{_show(name)} has no size", "`size_bytes`, a whole number")


def _is_unchanged(folder: Path, name: str, entry: Mapping[str, Any]) -> bool:
    """Compare sizes first: a file of another size needn't be read."""
    with contextlib.suppress(OSError):  # hash_file says what is wrong
        size_bytes = os.stat(folder / name).st_size
        if entry.get("size_bytes", size_bytes) != size_bytes:
            return False
    return bool(hash_file(folder, name)["sha256"] == entry["sha256"])


def _take(where: Path, value: Mapping[str, Any], key: str, kind: type, shown: str = "") -> Any:
    found = value.get(key)
    if not isinstance(found, kind):
        told = "missing" if key not in value else f"a {type(found).__name__}"
        _refuse(where, f"`{shown or key}` is {told}", f"a {kind.__name__}")
    return found


def _refuse(where: Path, found: str, expected: str = "") -> NoReturn:
    raise UnjudgedError(str(where), found, expected=expected, next_step=_AGAIN)


def _show(name: str) -> str:
    """A name for a terminal: control characters are written out."""
    return name if name.isprintable() else ascii(name)
