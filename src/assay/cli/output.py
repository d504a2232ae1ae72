"""What every verb shares: --json, and progress on stderr."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping
from typing import Any

from tqdm import tqdm

__all__ = ["ProgressLines", "add_json_flag", "print_json"]


def add_json_flag(parser: argparse.ArgumentParser) -> None:
    """Add --json and --quiet."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")


def print_json(value: Mapping[str, Any]) -> None:
    """Print an object as indented JSON; NaN and infinity, which JSON lacks, become null."""
    print(json.dumps(_make_plain(value), indent=2, ensure_ascii=False, allow_nan=False))


def _make_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _make_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_make_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


class ProgressLines:
    """A bar on a terminal, plain lines elsewhere, nothing when quiet."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._is_terminal = sys.stderr.isatty()
        self._bar: tqdm[Any] | None = None

    def start(self, stage: str, total_bytes: int = 0) -> None:
        """Begin a stage; with a total it gets a bar on a terminal."""
        self.close()
        if self._quiet:
            return
        if total_bytes and self._is_terminal:
            self._bar = tqdm(
                total=total_bytes,
                unit="B",
                unit_scale=True,
                desc=stage,
                file=sys.stderr,
                leave=False,
            )
        else:
            size = f" ({total_bytes / 1e6:,.0f} MB)" if total_bytes else ""
            print(f"{stage}{size}", file=sys.stderr, flush=True)

    def advance(self, num_bytes: int) -> None:
        """Move the bar on."""
        if self._bar is not None:
            self._bar.update(num_bytes)

    def tell(self, line: str) -> None:
        """Print one line."""
        self.start(line)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
