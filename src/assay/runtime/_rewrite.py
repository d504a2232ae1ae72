"""Change the session options in a genai_config.json, all or nothing."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from assay.errors import OutputError

from ._folder import CONFIG_NAME

__all__ = ["replace_file", "write_session_options"]


def write_session_options(folder: Path, session_options: dict[str, Any]) -> bytes:
    """Put new session options into the decoder's section; all else keeps its value and order.

    Returns the file's bytes as they were, for `replace_file` to put back.
    Raises OutputError where the file can't be written; it is then as it was.
    """
    file = folder / CONFIG_NAME
    before = file.read_bytes()
    text = before.decode("utf-8")
    config = json.loads(text)
    config["model"]["decoder"]["session_options"] = session_options
    indented = json.dumps(config, indent=_indent_of(text), ensure_ascii=False)
    replace_file(file, (indented + "\n" * text.endswith("\n")).encode("utf-8"))
    return before


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


def _indent_of(text: str) -> int | None:
    """The indentation of the first indented line; None for a file on one line."""
    for line in text.splitlines()[1:]:
        spaces = len(line) - len(line.lstrip(" "))
        if spaces:
            return spaces
    return None
