"""The execution providers that the installed onnxruntime offers, asked in a child process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Providers", "read_providers"]

# The child searches where we would: its own sys.path begins with the working directory.
_PROGRAM = """
import json, os, sys
report = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
sys.path[:] = json.loads(sys.stdin.read())
import onnxruntime
print(json.dumps(onnxruntime.get_available_providers()), file=report, flush=True)
"""


@dataclass(frozen=True)
class Providers:
    """names: in onnxruntime's order; error: why there are none, "" where it answered."""

    names: tuple[str, ...]
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def read_providers(path: Sequence[str], *, timeout_s: float = 60.0) -> Providers:
    """Ask onnxruntime; a broken or shadowed install ends in `error`, whatever it does.

    path: the sys.path to import it from.
    """
    try:
        child = subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            input=json.dumps(list(path)),
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as exc:
        return Providers((), f"onnxruntime couldn't be asked: {exc}")
    last_words = (child.stderr.strip().splitlines() or ["no reason given"])[-1]
    try:
        names = json.loads(child.stdout)
    except ValueError:
        return Providers((), f"exit code {child.returncode}: {last_words}")
    if child.returncode or not isinstance(names, list):
        return Providers((), f"exit code {child.returncode}: {last_words}")
    return Providers(tuple(str(name) for name in names))
