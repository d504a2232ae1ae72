"""JSON from a stranger: bounded in size and depth, an object at the top, errors with a place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from assay.checkpoint._positional_file import DOWNLOAD_AGAIN, PositionalFile
from assay.errors import CheckpointError

__all__ = ["parse_object", "read_object"]

Pairs = list[tuple[str, Any]]


def read_object(path: Path, *, max_bytes: int) -> dict[str, Any]:
    """Read a JSON file whose top level is an object. NaN and Infinity pass, as Python's json does.

    Raises CheckpointError when the file is too large, isn't JSON (with line and column), or holds
    something else than an object.
    """
    file = PositionalFile(path)
    try:
        if file.size_bytes > max_bytes:
            raise CheckpointError(
                str(path),
                f"has {file.size_bytes:,} bytes",
                expected=f"at most {max_bytes:,} bytes",
                next_step="This isn't a file of its name; " + DOWNLOAD_AGAIN.lower(),
            )
        raw = file.read_bytes(0, file.size_bytes)
    finally:
        file.close()
    return parse_object(raw, where=str(path))


def parse_object(
    raw: bytes, *, where: str, hook: Callable[[Pairs], dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Parse bytes into an object; `hook` sees the pairs of every object, duplicates included."""
    try:
        value = json.loads(raw.decode("utf-8-sig"), object_pairs_hook=hook)
    except json.JSONDecodeError as exc:
        raise CheckpointError(
            where,
            f"isn't valid JSON: {exc.msg} at line {exc.lineno}, column {exc.colno}",
            next_step=DOWNLOAD_AGAIN,
        ) from exc
    except (ValueError, RecursionError) as exc:  # bad UTF-8, huge integers, absurd nesting
        raise CheckpointError(where, f"isn't valid JSON: {exc}", next_step=DOWNLOAD_AGAIN) from exc
    if not isinstance(value, dict):
        raise CheckpointError(
            where,
            f"holds a JSON {type(value).__name__}",
            expected="a JSON object",
            next_step=DOWNLOAD_AGAIN,
        )
    return value
