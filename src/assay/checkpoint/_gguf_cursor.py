"""Walking through a GGUF header in small windows, never past the file's end."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay.checkpoint._positional_file import DOWNLOAD_AGAIN, PositionalFile
from assay.errors import CheckpointError

__all__ = ["GgufArray", "GgufCursor"]

_WINDOW_BYTES = 1 << 20
_MAX_STRING_BYTES = 64 << 20
_MAX_ARRAY_BYTES = 1 << 30
_SCALARS = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "<b1",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class GgufArray:
    """An array left in the file. kind: str, or a numpy dtype word such as '<i4'."""

    kind: Any
    count: int
    offset: int
    size_bytes: int

    def read_strings(self, file: PositionalFile) -> list[str]:
        """Read all strings (UTF-8, checked)."""
        raw = file.read_bytes(self.offset, self.size_bytes)
        strings = []
        position = 0
        for _ in range(self.count):
            (length,) = struct.unpack_from("<Q", raw, position)
            position += 8
            strings.append(_decode(file, raw[position : position + length]))
            position += length
        return strings

    def read_numbers(self, file: PositionalFile) -> np.ndarray[Any, np.dtype[Any]]:
        """Read all numbers in their stored dtype."""
        raw = file.read_bytes(self.offset, self.size_bytes)
        return np.frombuffer(raw, dtype=self.kind)


class GgufCursor:
    """A position in the header; every read is checked against the file's size."""

    def __init__(self, file: PositionalFile) -> None:
        self.file = file
        self.position = 0
        self._window = b""
        self._window_start = 0

    def take(self, size_bytes: int) -> bytes:
        """Read bytes and move on."""
        self._check(size_bytes)
        start = self.position - self._window_start
        if start + size_bytes > len(self._window):
            length = max(size_bytes, _WINDOW_BYTES)
            length = min(length, self.file.size_bytes - self.position)
            self._window = self.file.read_bytes(self.position, length)
            self._window_start = self.position
            start = 0
        self.position += size_bytes
        return self._window[start : start + size_bytes]

    def skip(self, size_bytes: int) -> None:
        """Move on without reading."""
        self._check(size_bytes)
        self.position += size_bytes
        if self.position - self._window_start > len(self._window):
            self._window, self._window_start = b"", self.position

    def read_u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def read_u64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def read_string(self, *, max_bytes: int = _MAX_STRING_BYTES) -> str:
        """Read a length and that many bytes of UTF-8."""
        length = self.read_u64()
        if length > max_bytes:
            raise self._fail(f"claims a string of {length:,} bytes", f"at most {max_bytes:,}")
        return _decode(self.file, self.take(length))

    def read_value(self) -> Any:
        """Read a typed metadata value; an array is checked, skipped and returned as GgufArray."""
        code = self.read_u32()
        if code in _SCALARS:
            dtype = np.dtype(_SCALARS[code])
            return np.frombuffer(self.take(dtype.itemsize), dtype)[0].item()
        if code == _STRING:
            return self.read_string()
        if code == _ARRAY:
            return self._pass_array()
        raise self._fail(f"has a metadata value of type {code}", "types 0 to 12")

    def _pass_array(self) -> GgufArray:
        code, count = self.read_u32(), self.read_u64()
        start = self.position
        if code in _SCALARS:
            item_bytes = np.dtype(_SCALARS[code]).itemsize
            if count > _MAX_ARRAY_BYTES // item_bytes:
                raise self._fail(f"claims an array of {count:,} numbers", "at most 1 GiB")
            self.skip(count * item_bytes)
        elif code == _STRING:
            if count > _MAX_ARRAY_BYTES // 8:
                raise self._fail(f"claims an array of {count:,} strings", "at most 1 GiB")
            self._check(8 * count)
            for _ in range(count):
                self.skip(self.read_u64())
        else:
            raise self._fail(f"has a metadata array of type {code}", "numbers or strings")
        size_bytes = self.position - start
        if size_bytes > _MAX_ARRAY_BYTES:
            raise self._fail(f"has a metadata array of {size_bytes:,} bytes", "at most 1 GiB")
        return GgufArray(_SCALARS.get(code, str), count, start, size_bytes)

    def _check(self, size_bytes: int) -> None:
        if size_bytes > self.file.size_bytes - self.position:
            raise self._fail(
                f"has {self.file.size_bytes:,} bytes and ends inside its header",
                f"{size_bytes:,} more bytes at {self.position:,}",
            )

    def _fail(self, found: str, expected: str) -> CheckpointError:
        return CheckpointError(
            str(self.file.path),
            f"{found} (at byte {self.position:,})",
            expected=expected,
            next_step=DOWNLOAD_AGAIN,
        )


def _decode(file: PositionalFile, raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise CheckpointError(
            str(file.path),
            f"has a string that isn't UTF-8 ({raw[:40]!r})",
            expected="UTF-8",
            next_step=DOWNLOAD_AGAIN,
        ) from exc
