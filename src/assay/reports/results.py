"""Results of checks and of the whole, each with a word, a sign and a colour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.reports.markup import Markup, tag
from assay.reports.section import list_of_mappings

__all__ = ["RESULTS", "Result", "draw_sign", "list_checks", "result_of", "show_result"]


@dataclass(frozen=True)
class Result:
    """kind: its class in the style sheet. word: what it is called. path: its sign, in 16 by 16."""

    kind: str
    word: str
    path: str


RESULTS = {
    "pass": Result("pass", "pass", "M3 8.5l3.5 3.5l6.5 -8"),
    "fail": Result("fail", "FAIL", "M4 4l8 8m0 -8l-8 8"),
    "unjudged": Result("unjudged", "could not judge", "M8 2.5v7m0 2.5v1.5"),
    "left-out": Result("left-out", "not counted", "M4 8h8"),
}


def list_checks(verdict: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The verdict's checks, as dictionaries."""
    return list_of_mappings(verdict.get("checks"))


def result_of(check: Mapping[str, Any]) -> Result:
    """A check that could not be judged counts only where it is required."""
    passed = check.get("passed")
    if isinstance(passed, bool):
        return RESULTS["pass" if passed else "fail"]
    return RESULTS["unjudged" if check.get("required", True) else "left-out"]


def show_result(result: Result) -> Markup:
    """Sign and word."""
    return tag("span", draw_sign(result), result.word, class_=f"result {result.kind}")


def draw_sign(result: Result) -> Markup:
    """The sign alone; the word stands beside it."""
    return tag(
        "svg", tag("path", d=result.path), viewBox="0 0 16 16", class_="sign", aria_hidden="true"
    )
