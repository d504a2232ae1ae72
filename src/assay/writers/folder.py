"""A folder that appears whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from assay.errors import OutputError

__all__ = ["MODEL_FOLDER_FILE", "check_free_space", "check_target", "new_folder", "writing_errors"]

# What marks a folder as a model's, so that --overwrite can't take anything else away.
MODEL_FOLDER_FILE = "genai_config.json"


@contextlib.contextmanager
def new_folder(target: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Give a temporary folder beside `target`; rename it to `target` when the body succeeds.

    Whatever fails, `target` stays as it was and nothing half-written is left.
    Raises OutputError where `target` exists and may not be replaced, or can't be written.
    """
    target = Path(os.path.abspath(target))
    check_target(target, overwrite=overwrite)
    with contextlib.ExitStack() as undo:
        with writing_errors(target):
            undo.callback(_remove_empty, _list_missing(target.parents))
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = Path(
                tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".partial", dir=target.parent)
            )
        undo.callback(shutil.rmtree, temporary, ignore_errors=True)
        with writing_errors(target):
            temporary.chmod(0o755)
            yield temporary
            _move_into_place(temporary, target)


def check_target(target: Path, *, overwrite: bool = False) -> None:
    """Raise OutputError where `target` is taken.

    overwrite: replace a model folder; one that holds anything else is never replaced.
    """
    with writing_errors(target):
        if not target.exists() and not target.is_symlink():
            return
        is_folder = target.is_dir() and not target.is_symlink()
        names = [path.name for path in target.iterdir()] if is_folder else []
    if is_folder and (not names or (overwrite and MODEL_FOLDER_FILE in names)):
        return
    if is_folder and overwrite:
        raise OutputError(
            str(target),
            f"it isn't a model folder, so it won't be replaced (it holds {sorted(names)[0]})",
            expected=f"no folder, an empty one, or one with {MODEL_FOLDER_FILE}",
            next_step="Choose another folder with -o.",
        )
    raise OutputError(
        str(target),
        "it exists already" if target.is_dir() else "it exists and is no folder",
        next_step="Choose another folder with -o, or replace it with --overwrite."
        if is_folder
        else "Choose another folder with -o.",
    )


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


def _list_missing(folders: Iterable[Path]) -> list[Path]:
    return [folder for folder in folders if not folder.exists()]


def _remove_empty(folders: Iterable[Path]) -> None:
    """Remove folders, the innermost first; those that hold something stay."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _move_into_place(temporary: Path, target: Path) -> None:
    """Rename; a folder that stands there is moved aside first, and back if that fails."""
    if not target.exists():
        temporary.rename(target)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".old", dir=target.parent))
    old = aside / "folder"
    try:
        target.rename(old)
        temporary.rename(target)
    except BaseException:  # an interrupt too must not lose the old folder
        if old.exists() and not target.exists():
            old.rename(target)
        if not old.exists():
            aside.rmdir()
        raise
    shutil.rmtree(aside, ignore_errors=True)
