"""Change the session options in a genai_config.json, all or nothing."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from assay.errors import OutputError

from ._folder import CONFIG_NAME

__all__ = ["refresh_manifest", "replace_file", "write_session_options"]

_MANIFEST_NAME = "manifest.json"


def write_session_options(folder: Path, session_options: dict[str, Any]) -> None:
    """Put new session options into the decoder's section; all else keeps its value and order.

    Raises OutputError where the file can't be written; it is then as it was.
    """
    file = folder / CONFIG_NAME
    text = file.read_bytes().decode("utf-8")
    config = json.loads(text)
    config["model"]["decoder"]["session_options"] = session_options
    indented = json.dumps(config, indent=_indent_of(text), ensure_ascii=False)
    replace_file(file, (indented + "\n" * text.endswith("\n")).encode("utf-8"))


def replace_file(file: Path, content: bytes) -> None:
    """Write beside the file under a temporary name, then rename over it, keeping its mode."""
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
        with os.fdopen(handle, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        os.chmod(temporary, file.stat().st_mode & 0o777 if file.exists() else 0o644)
        os.replace(temporary, file)
    except OSError as exc:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise OutputError(
            str(file),
            f"it can't be written ({exc.strerror or exc})",
            next_step="Make the folder writable and free some space, then run it again.",
        ) from exc


def refresh_manifest(folder: Path, names: tuple[str, ...]) -> None:
    """Bring the sizes and hashes of some files up to date in the folder's manifest.json.

    Folders of other tools have none, or one without a `files` object: they are left alone.
    """
    file = folder / _MANIFEST_NAME
    if not file.is_file():
        return
    try:
        manifest = json.loads(file.read_bytes())
    except ValueError:
        return
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        return
    for name in names:
        content = (folder / name).read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        manifest["files"][name] = {"size_bytes": len(content), "sha256": digest}
    indented = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    replace_file(file, indented.encode("utf-8"))


def _indent_of(text: str) -> int | None:
    """The indentation of the first indented line; None for a file on one line."""
    for line in text.splitlines()[1:]:
        spaces = len(line) - len(line.lstrip(" "))
        if spaces:
            return spaces
    return None
