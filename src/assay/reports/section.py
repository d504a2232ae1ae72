"""What a section of the report is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.reports.markup import Content

__all__ = ["Section", "list_of_mappings"]


@dataclass(frozen=True)
class Section:
    """A part with a heading. identity: its anchor, unique in the page. lead: what is shown, in a
    sentence or two; code stands between backticks.
    """

    identity: str
    title: str
    lead: str
    body: Content


def list_of_mappings(value: Any) -> list[Mapping[str, Any]]:
    """The mappings of a list; empty where it isn't one."""
    if not isinstance(value, (list, tuple)):
        return []
    return [item for item in value if isinstance(item, Mapping)]
