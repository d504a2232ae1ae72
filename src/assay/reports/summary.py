"""The top of a report: the verdict, why, what to do next, and what was judged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from assay.reports.advice import list_notes, tell_next_step, tell_reason
from assay.reports.markup import Content, Markup, join, name_code, prose, tag
from assay.reports.results import RESULTS, draw_sign, list_checks
from assay.reports.sections.environment import list_warnings
from assay.reports.tables import fact_list

__all__ = ["name_folder", "show_summary", "status_of"]

_WORDS = {"pass": "Pass", "fail": "Fail", "unjudged": "Unjudged"}


def status_of(verdict: Mapping[str, Any]) -> str:
    """pass, fail or unjudged; a word that is none of them counts as unjudged."""
    status = str(verdict.get("verdict"))
    return status if status in _WORDS else "unjudged"


def name_folder(verdict: Mapping[str, Any]) -> str:
    """The folder's own name, without the way there."""
    folder = str(verdict.get("folder") or "")
    return PurePath(folder).name or folder or "no folder"


def show_summary(verdict: Mapping[str, Any]) -> Markup:
    """Header, verdict and facts."""
    status = status_of(verdict)
    checks = list_checks(verdict)
    notes = [*list_warnings(verdict), *list_notes(verdict)]
    banner = tag(
        "section",
        tag(
            "p",
            draw_sign(RESULTS[status]),
            tag("strong", _WORDS[status]),
            class_="status",
        ),
        tag("p", tell_reason(status, checks), class_="reason"),
        tag("p", tag("strong", "Next: "), prose(tell_next_step(status, checks)), class_="next"),
        class_=f"verdict {status}",
        aria_label="Verdict",
    )
    listed: Content = None
    if notes:
        listed = tag(
            "section",
            tag("h2", "To know"),
            tag("ul", [tag("li", note) for note in notes]),
            class_="notes",
        )
    header = tag(
        "header",
        tag("p", "assay parity report", class_="brand"),
        tag("h1", name_folder(verdict)),
    )
    return join([header, banner, fact_list(_list_facts(verdict)), listed])


def _list_facts(verdict: Mapping[str, Any]) -> list[tuple[str, Content]]:
    certificate = verdict.get("certificate")
    kept: Mapping[str, Any] = certificate if isinstance(certificate, Mapping) else {}
    return [
        ("Folder", _code(verdict.get("folder"))),
        ("Reference", _code(verdict.get("reference"))),
        ("Precision", str(verdict.get("precision") or "")),
        ("Certificate", _tell_certificate(str(kept.get("path") or ""), verdict)),
        ("Judged at", str(kept.get("written_at") or "")),
        ("assay", str(kept.get("assay_version") or "")),
    ]


def _tell_certificate(path: str, verdict: Mapping[str, Any]) -> Content:
    """Its path; where it lies in the folder, its name."""
    if not path:
        return None
    inside = str(PurePath(path).parent) == str(PurePath(str(verdict.get("folder") or "")))
    return [name_code(PurePath(path).name), ", in the folder"] if inside else name_code(path)


def _code(value: Any) -> Content:
    return name_code(str(value)) if value else None
