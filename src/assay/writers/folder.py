"""A folder that appears whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from assay.errors import OutputError

__all__ = ["check_free_space", "new_folder", "writing_errors"]


@contextlib.contextmanager
def new_folder(target: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Give a temporary folder beside `target`; rename it to `target` when the body succeeds.

    Whatever fails, `target` stays as it was and nothing half-written is left.
    Raises OutputError where `target` exists and may not be replaced, or can't be written.
    """
    target = Path(os.path.abspath(target))
    _check_target(target, overwrite)
    with writing_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(
            tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".partial", dir=target.parent)
        )
    try:
        temporary.chmod(0o755)
        with writing_errors(target):
            yield temporary
            _move_into_place(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def check_free_space(folder: Path, size_bytes: int) -> None:
    """Raise OutputError where the disk can't hold `size_bytes` more."""
    free = shutil.disk_usage(folder).free
    if free < size_bytes:
        raise OutputError(
            str(folder),
            f"{free / 1e6:,.0f} MB are free on this disk",
            expected=f"at least {size_bytes / 1e6:,.0f} MB for the model",
            next_step="Free some space, or write to another disk with -o.",
        )


@contextlib.contextmanager
def writing_errors(target: Path) -> Iterator[None]:
    """Turn the operating system's write errors into an OutputError about `target`."""
    try:
        yield
    except OSError as exc:
        full = exc.errno in (errno.ENOSPC, errno.EDQUOT)
        found = "the disk is full" if full else f"it can't be written ({exc.strerror or exc})"
        raise OutputError(
            str(target),
            found,
            next_step="Free some space, or write to another disk with -o. Nothing was left behind."
            if full
            else "Check the path and its permissions, or choose another with -o.",
        ) from exc


def _check_target(target: Path, overwrite: bool) -> None:
    if not target.exists() and not target.is_symlink():
        return
    if target.is_dir() and not target.is_symlink() and (overwrite or not any(target.iterdir())):
        return
    raise OutputError(
        str(target),
        "it exists already" if target.is_dir() else "it exists and is no folder",
        next_step="Choose another folder with -o, or replace it with --overwrite.",
    )


def _move_into_place(temporary: Path, target: Path) -> None:
    if not target.exists():
        temporary.rename(target)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".old", dir=target.parent))
    target.rename(old / "folder")
    try:
        temporary.rename(target)
    except OSError:
        (old / "folder").rename(target)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)
