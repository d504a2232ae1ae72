"""Writes a report, whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.errors import OutputError
from assay.reports.page import render_diagnosis, render_html

__all__ = ["write_report"]


def write_report(path: str | Path, content: Mapping[str, Any]) -> None:
    """Render a verdict or a diagnosis and put it at `path`, by a temporary name beside it.

    content: what `Verdict.to_dict()` or `Diagnosis.to_json()` gives. A report that is there is
    replaced.
    Raises OutputError where the target can't be written or isn't a file.
    """
    from assay.runtime._rewrite import replace_file

    file = Path(os.path.realpath(path))
    if os.path.exists(file) and not os.path.isfile(file):  # renaming over a device would remove it
        raise OutputError(
            str(path),
            "it is there, and it isn't a file",
            next_step="Give the name of the file to write, such as report.html.",
        )
    if not os.path.isdir(file.parent):
        raise OutputError(
            str(path),
            f"the folder {file.parent} doesn't exist",
            next_step="Create it, or choose another place.",
        )
    render = render_diagnosis if "health" in content else render_html
    replace_file(file, render(content).encode("utf-8"))
