"""What the folder was judged on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.reports.markup import tag
from assay.reports.numbers import show_number
from assay.reports.section import Section, list_of_mappings
from assay.reports.tables import simple_table

__all__ = ["show_prompts"]


def show_prompts(verdict: Mapping[str, Any]) -> Section | None:
    """A table of `prompts`."""
    prompts = list_of_mappings(verdict.get("prompts"))
    if not prompts:
        return None
    rows = [
        (
            str(index),
            show_number(prompt.get("num_tokens")),
            str(prompt.get("source", "")),
            tag("code", str(prompt.get("sha256", "")), class_="hash"),
        )
        for index, prompt in enumerate(prompts, start=1)
    ]
    table = simple_table(
        "Prompts", ("Prompt", "Tokens", "Source", "SHA-256 of its ids"), rows, numeric=("Tokens",)
    )
    lead = "The hash is of the token ids as little-endian 64-bit integers."
    return Section("prompts", "Prompts", lead, table)
