"""A read-only file read at positions, with every byte accounted for.

Read with pread and not mapped: mapped pages count as resident set, and a mapped file that is
truncated under us kills the process (docs/decisions/0003-reading-with-pread.md).
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.errors import CheckpointError

__all__ = ["DOWNLOAD_AGAIN", "PositionalFile"]

DOWNLOAD_AGAIN = "The file is incomplete or damaged: download it again."
_MAX_READ_BYTES = 1 << 30  # Linux moves at most 2 GiB - 4 KiB in one call


class PositionalFile:
    """An open regular file and its size when opened. Safe to read from several threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # O_NONBLOCK: a named pipe in the folder must not hang us before we see what it is.
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError) as exc:
            raise CheckpointError(
                str(path),
                f"can't be opened ({exc})",
                next_step="Check that the file exists and that you may read it.",
            ) from exc
        status = os.fstat(self._descriptor)
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise CheckpointError(
                str(path),
                "isn't a regular file",
                expected="a file with the checkpoint's bytes",
                next_step="Replace it by the file itself or by a symbolic link to it.",
            )
        self.size_bytes = status.st_size

    def read_bytes(self, offset: int, size_bytes: int) -> bytes:
        """Read exactly `size_bytes` from `offset`; the caller has bounded the size."""
        buffer = np.empty(size_bytes, dtype=np.uint8)
        self.read_into(offset, buffer)
        return buffer.tobytes()

    def read_into(self, offset: int, array: npt.NDArray[Any]) -> None:
        """Fill a C-contiguous array with the bytes at `offset`, all of them or an error."""
        assert self._descriptor >= 0, f"{self.path} is closed"
        assert array.flags.c_contiguous
        view = array.reshape(-1).view(np.uint8).data
        filled = 0
        while filled < len(view):
            chunk = view[filled : filled + _MAX_READ_BYTES]
            try:
                count = os.preadv(self._descriptor, [chunk], offset + filled)
            except OSError as exc:
                raise CheckpointError(
                    str(self.path),
                    f"reading {len(view):,} bytes at {offset:,} failed ({exc})",
                    next_step="Check the disk, or copy the checkpoint to another one.",
                ) from exc
            if count == 0:
                raise CheckpointError(
                    str(self.path),
                    f"it ends at byte {os.fstat(self._descriptor).st_size:,} now",
                    expected=f"{len(view):,} bytes at {offset:,} "
                    f"(the file had {self.size_bytes:,} bytes when it was opened)",
                    next_step="Don't change a checkpoint while it is read. " + DOWNLOAD_AGAIN,
                )
            filled += count

    def close(self) -> None:
        """Close the descriptor; closing twice does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
