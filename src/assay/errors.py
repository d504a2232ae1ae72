"""One exception family: where, what was found, what was expected, what to do next.

A user's fault (or a file's) raises a subclass of `AssayError`; a fault of ours is an assert.
"""

from __future__ import annotations

__all__ = [
    "AssayError",
    "CheckpointError",
    "ConfigError",
    "DependencyError",
    "OptionError",
    "OutputError",
    "RuntimeFolderError",
    "UnjudgedError",
    "UnknownArchitectureError",
    "WeightError",
]


class AssayError(Exception):
    """Base of every error that a user can cause and mend.

    where: the file, module path or option at fault.
    found: what is there, as a sentence without its final stop.
    expected: what should be there (optional).
    next_step: what to do now (optional, but nearly always there).
    """

    def __init__(self, where: str, found: str, *, expected: str = "", next_step: str = "") -> None:
        self.where = where
        self.found = found
        self.expected = expected
        self.next_step = next_step
        lines = [f"{where}: {found}"]
        if expected:
            lines.append(f"Expected: {expected}")
        if next_step:
            lines.append(next_step)
        super().__init__("\n".join(lines))


class CheckpointError(AssayError):
    """A checkpoint's files are missing, damaged, truncated or hostile."""


class ConfigError(AssayError):
    """A config key is unknown, missing, of the wrong kind, or asks for what we refuse."""


class UnknownArchitectureError(AssayError):
    """No spec is registered for the checkpoint's model_type."""


class WeightError(AssayError):
    """A tensor is missing, unmapped, or has the wrong shape or dtype."""


class OptionError(AssayError):
    """An option, or a combination of options, is impossible."""


class OutputError(AssayError):
    """The output can't be written: it exists, the disk is full, access is denied."""


class RuntimeFolderError(AssayError):
    """A model folder can't be loaded or run by the runtime."""


class UnjudgedError(AssayError):
    """A verdict could not be reached (exit code 2)."""


class DependencyError(AssayError):
    """An optional dependency is needed and isn't installed."""
