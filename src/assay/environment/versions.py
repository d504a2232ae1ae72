"""Versions and how they compare (PEP 440), as far as declared requirements need it.

The standard library has no such thing, and this must work where packages are broken or missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["holds"]

_VERSION = re.compile(
    r"\s*v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)"
    r"(?:[-_.]?(?P<pre>alpha|beta|preview|pre|rc|a|b|c)[-_.]?(?P<pre_number>\d*))?"
    r"(?:-(?P<post_dash>\d+)|[-_.]?(?P<post>post|rev|r)[-_.]?(?P<post_number>\d*))?"
    r"(?:[-_.]?(?P<dev>dev)[-_.]?(?P<dev_number>\d*))?"
    r"(?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?\s*",
    re.IGNORECASE,
)
_PRE = {"a": "a", "alpha": "a", "b": "b", "beta": "b"}


def holds(found: str, operator: str, wanted: str) -> bool:
    """Does `found` stand to `wanted` as the operator says? Pre-releases count as versions.

    What isn't a PEP 440 version meets everything: nothing can be said against it.
    """
    if operator == "===":
        return found.strip().lower() == wanted.lower()
    have = _parse(found)
    if wanted.endswith(".*"):
        prefix = _parse(wanted[:-2])
        if have is None or prefix is None:
            return True
        return _has_prefix(have, prefix.epoch, prefix.release) == (operator == "==")
    want = _parse(wanted)
    if have is None or want is None:
        return True
    return _COMPARISONS[operator](have, want)


@dataclass(frozen=True)
class _Version:
    """Parts of a version; key: its order, without the local part."""

    epoch: int
    release: tuple[int, ...]
    is_pre: bool
    is_post: bool
    key: tuple[Any, ...]
    local: str


def _parse(text: str) -> _Version | None:
    match = _VERSION.fullmatch(text)
    if match is None:
        return None
    release = tuple(int(part) for part in match["release"].split("."))
    trimmed = release
    while len(trimmed) > 1 and trimmed[-1] == 0:
        trimmed = trimmed[:-1]
    pre: tuple[Any, ...] = ("z",)  # after every pre-release
    if match["pre"]:
        pre = (_PRE.get(match["pre"].lower(), "rc"), int(match["pre_number"] or 0))
    has_post = match["post"] is not None or match["post_dash"] is not None
    post = int(match["post_number"] or match["post_dash"] or 0) if has_post else -1
    dev = float(match["dev_number"] or 0) if match["dev"] else float("inf")
    if match["dev"] and not match["pre"] and not has_post:
        pre = ("",)  # 1.0.dev1 comes before 1.0a1
    epoch = int(match["epoch"] or 0)
    is_pre = bool(match["pre"] or match["dev"])
    local = re.sub(r"[-_.]+", ".", (match["local"] or "").lower())
    return _Version(epoch, release, is_pre, has_post, (epoch, trimmed, pre, post, dev), local)


def _has_prefix(have: _Version, epoch: int, release: tuple[int, ...]) -> bool:
    padded = have.release + (0,) * (len(release) - len(have.release))
    return have.epoch == epoch and padded[: len(release)] == release


def _is_equal(have: _Version, want: _Version) -> bool:
    return have.key == want.key and (not want.local or have.local == want.local)


def _is_less(have: _Version, want: _Version) -> bool:
    """Below, and no pre-release of the bound itself (1.0rc1 isn't < 1.0)."""
    (epoch, release, _, post, _), bound = have.key, want.key
    same = (epoch, release, post) == (bound[0], bound[1], bound[3])
    return have.key < want.key and (want.is_pre or not have.is_pre or not same)


def _is_greater(have: _Version, want: _Version) -> bool:
    """Above, and no post-release or local version of the bound itself (1.0.post1 isn't > 1.0)."""
    same = have.key[:3] == want.key[:3]
    return have.key > want.key and not (same and have.is_post and not want.is_post)


def _is_compatible(have: _Version, want: _Version) -> bool:
    return have.key >= want.key and _has_prefix(have, want.epoch, want.release[:-1])


_COMPARISONS: dict[str, Callable[[_Version, _Version], bool]] = {
    "==": _is_equal,
    "!=": lambda have, want: not _is_equal(have, want),
    "<=": lambda have, want: have.key <= want.key,
    ">=": lambda have, want: have.key >= want.key,
    "<": _is_less,
    ">": _is_greater,
    "~=": _is_compatible,
}
