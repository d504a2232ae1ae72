"""The checks, each number beside its bound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.reports.bounds import Held, draw_gauge, list_held, show_metric
from assay.reports.check_names import describe_check
from assay.reports.markup import Content, Markup, join, tag
from assay.reports.numbers import as_float, count, show_number
from assay.reports.results import list_checks, result_of, show_result
from assay.reports.section import Section
from assay.reports.tables import fold, scroll_box, simple_table

__all__ = ["show_all_numbers", "show_checks"]

_HELD = ("Number", "Measured", "Bound", "Against bound")
_COLUMNS = ("Check", "Result", *_HELD)
_MAX_LISTED = 200


def show_checks(verdict: Mapping[str, Any]) -> Section | None:
    """A row for each bound of each check; what was said about it stands below."""
    checks = list_checks(verdict)
    if not checks:
        return None
    head = tag(
        "tr",
        [
            tag("th", c, scope="col", class_="number" if c in ("Measured", "Bound") else None)
            for c in _COLUMNS
        ],
    )
    table = tag("table", tag("thead", head), [_show_check(c) for c in checks], class_="checks")
    lead = (
        "relL2 is ||candidate - reference|| / ||reference|| of the logits; corr, their Pearson "
        "correlation, is blind to scale. In the gauge the line is the bound, and each side spans "
        "three decades."
    )
    return Section("checks", "Checks", lead, scroll_box("Checks", table))


def show_all_numbers(verdict: Mapping[str, Any]) -> Section | None:
    """Everything that was measured, folded away."""
    rows: list[tuple[Content, ...]] = []
    for check in list_checks(verdict):
        metrics = check.get("metrics")
        for name, value in metrics.items() if isinstance(metrics, Mapping) else ():
            shown = _show_value(str(name), value)
            if shown is not None:
                rows.append((tag("code", str(check.get("name"))), tag("code", str(name)), shown))
    if not rows:
        return None
    table = simple_table("All numbers", ("Check", "Number", "Value"), rows)
    return Section(
        "numbers",
        "All numbers",
        "By the names that they have in the JSON output.",
        fold(f"Show {count(len(rows), 'number')}", table),
    )


def _show_check(check: Mapping[str, Any]) -> Markup:
    """The rows of one check: a line a bound, then other numbers, then what was said."""
    result, name = result_of(check), describe_check(str(check.get("name")))
    held, also = list_held(check) or [_tell_found(check)], _list_also(check)
    chips = [name.part, f"prompt {name.prompt}" if name.prompt else ""]
    height = len(held) + bool(also)
    heading = tag(
        "th",
        tag("span", name.title, class_="check-title"),
        [tag("span", chip, class_="chip") for chip in chips if chip],
        tag("span", name.subject, class_="aside"),
        scope="rowgroup",
        rowspan=height,
    )
    start = [heading, tag("td", show_result(result), rowspan=height)]
    rows = [tag("tr", start if not i else None, _show_held(line)) for i, line in enumerate(held)]
    if also:
        cells = tag("td", [tag("span", text) for text in also], colspan=len(_HELD))
        rows.append(tag("tr", cells, class_="also"))
    rows.extend(_show_told(check))
    return tag("tbody", rows, class_=f"check {result.kind}")


def _show_told(check: Mapping[str, Any]) -> list[Markup]:
    """What was said about a check, and the name of its end, in a row of their own."""
    detail, outcome = str(check.get("detail") or ""), str(check.get("outcome") or "")
    if not detail and not outcome:
        return []
    named = tag("code", outcome, class_="chip") if outcome else None
    cell = tag("td", join([named, detail], " "), colspan=len(_COLUMNS))
    return [tag("tr", cell, class_="detail")]


def _show_held(held: Held) -> list[Markup]:
    return [
        tag("td", held.name, class_="name"),
        tag("td", held.value, class_="number"),
        tag("td", held.bound, class_="number"),
        tag("td", draw_gauge(held.ratio)),
    ]


def _tell_found(check: Mapping[str, Any]) -> Held:
    """The number that says most, for a check without a bound."""
    metrics = check.get("metrics")
    known: Mapping[str, Any] = metrics if isinstance(metrics, Mapping) else {}
    if "num_agreeing" in known:
        found = f"{show_number(known['num_agreeing'])} of {show_number(known.get('num_tokens'))}"
        return Held("tokens agreeing", found)
    if "num_failed" in known:
        found = f"{show_number(known['num_failed'])} of {show_number(known.get('num_tensors'))}"
        return Held("tensors failed", found)
    if "num_differing" in known:
        found = f"{show_number(known['num_differing'])} of {show_number(known.get('num_texts'))}"
        return Held("texts differing", found)
    if "rel_l2" in known:
        return Held("relL2", show_number(known["rel_l2"]))
    return Held("", "")


def _list_also(check: Mapping[str, Any]) -> list[str]:
    """Other numbers worth a look."""
    metrics, bounds = check.get("metrics"), check.get("bound")
    known: Mapping[str, Any] = metrics if isinstance(metrics, Mapping) else {}
    bounded = bounds if isinstance(bounds, Mapping) else {}
    told = []
    if "corr" in known and "min_corr" not in bounded:
        told.append(f"corr {show_metric('corr', known['corr'])}")
    if "rel_l2" in known and bounded and "rel_l2" not in bounded:
        told.append(f"relL2 {show_number(known['rel_l2'])}")
    for name, text in (("prefill_rel_l2", "relL2 of prefill"), ("worst_rel_l2", "worst relL2")):
        if name in known and "rel_l2" not in known:
            told.append(f"{text} {show_number(known[name])}")
    if "kl_nats_per_token" in known:
        told.append(f"KL {show_number(known['kl_nats_per_token'])} nats per token")
    if as_float(known.get("argmax_counted")):
        told.append(
            f"argmax differs at {show_number(known.get('argmax_mismatches'))} of "
            f"{show_number(known['argmax_counted'])} that count"
        )
    return told


def _show_value(name: str, value: Any) -> str | None:
    if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        return show_metric(name, value)
    if isinstance(value, (bool, str)):
        return str(value)
    if isinstance(value, (list, tuple)) and all(isinstance(v, (int, str)) for v in value):
        more = f" and {len(value) - _MAX_LISTED:,} more" if len(value) > _MAX_LISTED else ""
        return ", ".join(str(v) for v in value[:_MAX_LISTED]) + more
    return None
