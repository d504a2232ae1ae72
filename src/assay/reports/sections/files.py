"""The files that were judged, by their hashes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.reports.markup import Content, name_code, tag
from assay.reports.numbers import show_bytes
from assay.reports.section import Section
from assay.reports.tables import simple_table

__all__ = ["show_files"]


def show_files(verdict: Mapping[str, Any]) -> Section | None:
    """A table of the certificate's files: {name: {"sha256", "size_bytes"}} or {name: sha256}."""
    certificate = verdict.get("certificate")
    if not isinstance(certificate, Mapping):
        return None
    files = certificate.get("files") or certificate.get("model_files")
    if not isinstance(files, Mapping) or not files:
        return None
    rows = [_show_row(str(name), files[name]) for name in sorted(files)]
    table = simple_table("Files judged", ("File", "Size", "SHA-256"), rows, numeric=("Size",))
    lead = (
        "The verdict holds for these bytes. `assay verify FOLDER --certificate` tells whether "
        "they are still the same."
    )
    return Section("files", "Files", lead, table)


def _show_row(name: str, entry: Any) -> tuple[Content, ...]:
    if not isinstance(entry, Mapping):
        return name_code(name), "", tag("code", str(entry), class_="hash")
    left_out = entry.get("without")
    note: Content = None
    if isinstance(left_out, (list, tuple)) and left_out:
        note = tag("p", "without ", ", ".join(str(path) for path in left_out), class_="aside")
    digest = tag("code", str(entry.get("sha256", "")), class_="hash")
    return name_code(name), show_bytes(entry.get("size_bytes")), [digest, note]
