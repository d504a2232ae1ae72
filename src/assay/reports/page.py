"""The page: one file with its style in it, no script, nothing fetched."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from assay.reports.diagnosis_summary import show_diagnosis_summary
from assay.reports.markup import Content, Markup, join, prose, tag
from assay.reports.section import Section
from assay.reports.sections import DIAGNOSIS_SECTIONS, SECTIONS
from assay.reports.summary import name_folder, show_summary, status_of

__all__ = ["render_diagnosis", "render_html"]


def render_html(verdict: Mapping[str, Any]) -> str:
    """One HTML document for the dictionary that `Verdict.to_dict()` gives.

    Keys that are absent leave their section out. The same dictionary gives the same text.
    """
    found = [section for show in SECTIONS if (section := show(verdict)) is not None]
    title = f"{status_of(verdict)}: {name_folder(verdict)} - assay parity report"
    return _assemble(title, show_summary(verdict), found)


def render_diagnosis(diagnosis: Mapping[str, Any]) -> str:
    """One HTML document for the dictionary that `Diagnosis.to_json()` gives."""
    found = [s for show in DIAGNOSIS_SECTIONS if (s := show(diagnosis)) is not None]
    title = f"{diagnosis.get('health')}: {name_folder(diagnosis)} - assay diagnosis"
    return _assemble(title, show_diagnosis_summary(diagnosis), found)


def _assemble(title: str, summary: Markup, found: list[Section]) -> str:
    links = [tag("li", tag("a", s.title, href=f"#{s.identity}")) for s in found]
    body = tag(
        "body",
        tag(
            "main",
            summary,
            tag("nav", tag("ul", links), aria_label="Contents") if links else None,
            [_show_section(section) for section in found],
        ),
        "\n",
    )
    document = tag("html", _head(title), "\n", body, lang="en")
    return f"<!doctype html>\n{document}\n"


def _head(title: str) -> Markup:
    style = _read_style()
    digest = base64.b64encode(hashlib.sha256(style.encode("utf-8")).digest()).decode("ascii")
    # What isn't allowed here can't happen, whatever a name may hold: no script, no request.
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'"
    parts: list[Content] = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("link", rel="icon", href="data:,"),
        tag("title", title),
        tag("style", Markup(style)),
    ]
    return tag("head", join(parts, "\n"))


@cache
def _read_style() -> str:
    return Path(__file__).with_name("style.css").read_text(encoding="utf-8")


def _show_section(section: Section) -> Markup:
    return tag(
        "section",
        tag("h2", section.title),
        tag("p", prose(section.lead), class_="lead"),
        section.body,
        id=section.identity,
    )
