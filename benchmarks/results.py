"""Tables for people, and the same numbers kept as JSON and Markdown under results/."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"


def median_of(values: Sequence[float]) -> float:
    """The median."""
    return statistics.median(values)


def spread_of(values: Sequence[float]) -> str:
    """The smallest and the largest, in brackets."""
    return f"[{min(values):.3g} .. {max(values):.3g}]"


def ratio_of_pairs(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median over pairs of ours / theirs."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def make_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with its columns lined up."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [[*head], ["-" * width for width in widths], *map(list, rows)]
    return "\n".join(
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in lines
    )


def write_results(what: str, data: dict[str, Any], text: str) -> Path:
    """Keep data as JSON and text as Markdown, named by date; returns the Markdown file."""
    RESULTS.mkdir(exist_ok=True)
    stem = f"{datetime.now(timezone.utc).date().isoformat()}-{what}"
    kept = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    (RESULTS / f"{stem}.json").write_text(kept, encoding="utf-8")
    file = RESULTS / f"{stem}.md"
    file.write_text(text + "\n", encoding="utf-8")
    return file
