"""HTML and SVG as text: whatever isn't `Markup` is escaped, so a name never becomes an element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

__all__ = ["Content", "Markup", "clean", "join", "name_code", "prose", "tag"]


class Markup(str):
    """Text that is HTML already. Any other text is escaped where it is put into an element.

    Adding or formatting gives a plain `str`, which is then escaped: a slip shows as text.
    """

    __slots__ = ()


Content: TypeAlias = "str | int | float | Sequence[Content] | None"
Attribute: TypeAlias = "str | int | float | None"

_VOID = frozenset({"br", "link", "meta", "wbr"})
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})
_BREAK_AFTER = "._/-"


def tag(name: str, /, *content: Content, **attributes: Attribute) -> Markup:
    """One element.

    attributes: `class_` is class, an underscore stands for a hyphen; None is left out, numbers
    get two decimals at most.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_write(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{join(content)}</{name}>")


def join(content: Content, separator: str = "") -> Markup:
    """Several pieces one after the other; plain text among them is escaped."""
    if content is None:
        return Markup("")
    if isinstance(content, Markup):
        return content
    if isinstance(content, (str, int, float)):
        return Markup(_write(content))
    pieces = (join(piece) for piece in content)
    return Markup(_write(separator).join(piece for piece in pieces if piece))


def name_code(name: str) -> Markup:
    """A name of a tensor, a file or a module as code; it may be broken after dots and slashes."""
    pieces: list[Content] = []
    start = 0
    for index, character in enumerate(name):
        if character in _BREAK_AFTER and 0 < index < len(name) - 1:
            pieces += [name[start : index + 1], tag("wbr")]
            start = index + 1
    return tag("code", pieces, name[start:])


def prose(text: str) -> Markup:
    """A sentence in which what stands between backticks is code."""
    pieces = text.split("`")
    return join([tag("code", p) if i % 2 else p for i, p in enumerate(pieces)])


def clean(text: str) -> str:
    """Write out what can't be seen: control characters, marks that turn the reading direction,
    and halves of characters, which no UTF-8 file can hold. Line ends stay.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode("ascii")
        for c in text
    )


def _write(value: str | int | float) -> str:
    if isinstance(value, Markup):
        return value
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return clean(str(value)).translate(_ESCAPES)
