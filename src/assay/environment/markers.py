"""Environment markers of package metadata (PEP 508): on which machine a requirement applies."""

from __future__ import annotations

import functools
import os
import platform
import re
import sys

from assay.environment.versions import holds

__all__ = ["holds_marker"]

_TOKEN = re.compile(
    r"\s*(?:(?P<open>\()|(?P<close>\))|(?P<string>'[^']*'|\"[^\"]*\")"
    r"|(?P<operator>===|~=|==|!=|<=|>=|<|>|not\s+in\b|in\b)"
    r"|(?P<word>and\b|or\b)|(?P<name>[a-z_.]+))"
)
_VERSIONS = ("python_version", "python_full_version", "implementation_version")


class _UnreadableError(ValueError):
    """It isn't a marker that we know."""


def holds_marker(marker: str, *, extra: str = "") -> bool:
    """Does a marker hold for this interpreter and machine? "" always does.

    extra: what the name `extra` stands for. A marker that can't be read doesn't hold.
    """
    if not marker.strip():
        return True
    try:
        return _Parser(marker, {**_read_machine(), "extra": extra}).parse()
    except _UnreadableError:
        return False


@functools.cache
def _read_machine() -> dict[str, str]:
    info = sys.implementation.version
    return {
        "os_name": os.name,
        "sys_platform": sys.platform,
        "platform_machine": platform.machine(),
        "platform_python_implementation": platform.python_implementation(),
        "platform_release": platform.release(),
        "platform_system": platform.system(),
        "platform_version": platform.version(),
        "python_version": ".".join(platform.python_version_tuple()[:2]),
        "python_full_version": platform.python_version(),
        "implementation_name": sys.implementation.name,
        "implementation_version": f"{info.major}.{info.minor}.{info.micro}",
    }


class _Parser:
    """Recursive descent: or, and, comparison or parentheses."""

    def __init__(self, text: str, values: dict[str, str]) -> None:
        self._tokens = _split(text)
        self._values = values
        self._at = 0

    def parse(self) -> bool:
        result = self._read_or()
        if self._at != len(self._tokens):
            raise _UnreadableError
        return result

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "")

    def _take(self, kind: str) -> str:
        found, text = self._peek()
        if found != kind:
            raise _UnreadableError
        self._at += 1
        return text

    def _read_or(self) -> bool:
        result = self._read_and()
        while self._peek() == ("word", "or"):
            self._at += 1
            result = self._read_and() or result
        return result

    def _read_and(self) -> bool:
        result = self._read_one()
        while self._peek() == ("word", "and"):
            self._at += 1
            result = self._read_one() and result
        return result

    def _read_one(self) -> bool:
        if self._peek()[0] == "open":
            self._at += 1
            result = self._read_or()
            self._take("close")
            return result
        left_name, left = self._read_value()
        operator = " ".join(self._take("operator").split())
        right_name, right = self._read_value()
        is_version = left_name in _VERSIONS or right_name in _VERSIONS
        return _compare(left, operator, right, is_version=is_version)

    def _read_value(self) -> tuple[str, str]:
        kind, text = self._peek()
        self._at += 1
        if kind == "string":
            return "", text[1:-1]
        if kind == "name" and text in self._values:
            return text, self._values[text]
        raise _UnreadableError


def _split(text: str) -> list[tuple[str, str]]:
    tokens, position, text = [], 0, text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            raise _UnreadableError
        tokens.append((match.lastgroup, match[match.lastgroup]))
        position = match.end()
    return tokens


def _compare(left: str, operator: str, right: str, *, is_version: bool) -> bool:
    if operator in ("in", "not in"):
        return (left in right) == (operator == "in")
    if is_version:
        return holds(left, operator, right)
    if operator in ("==", "==="):
        return left == right
    if operator == "!=":
        return left != right
    raise _UnreadableError
