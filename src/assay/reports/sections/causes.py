"""What the doctor found: causes, where errors enter, what quantization costs, what was tried."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.reports.markup import Content, Markup, join, name_code, tag
from assay.reports.numbers import as_float, count, show_number
from assay.reports.section import Section, list_of_mappings
from assay.reports.sections.layers import plot_layers
from assay.reports.tables import fact_list, simple_table

__all__ = ["show_causes", "show_loss", "show_own_errors", "show_tried"]


def show_causes(diagnosis: Mapping[str, Any]) -> Section | None:
    """Every cause with its place, its evidence and what to change; then errors without one."""
    causes = list_of_mappings(diagnosis.get("causes"))
    entries = list_of_mappings(diagnosis.get("entries"))
    if not causes and not entries:
        return None
    parts: list[Content] = [_show_cause(number, cause) for number, cause in enumerate(causes, 1)]
    parts += [_show_entry(entry) for entry in entries]
    lead = f"{count(len(causes), 'cause')} of what the folder computes otherwise."
    if entries:
        lead += f" {count(len(entries), 'error')} of unknown cause."
    return Section("causes", "Causes", lead, parts)


def _show_cause(number: int, cause: Mapping[str, Any]) -> Markup:
    sure = as_float(cause.get("confidence"))
    places = [name_code(place) for place in str(cause.get("place", "")).split(", ")]
    facts: list[tuple[str, Content]] = [
        ("Place", join(places, ", ")),
        ("Evidence", str(cause.get("evidence", ""))),
        ("Fix", tag("strong", str(cause.get("fix", "")))),
        ("Sure", "" if sure is None else f"{sure:.0%}"),
    ]
    return tag(
        "article", tag("h3", f"{number}. ", name_code(str(cause.get("id", "")))), _list(facts)
    )


def _show_entry(entry: Mapping[str, Any]) -> Markup:
    nodes = [str(node) for node in entry.get("nodes") or ()]
    between: Content = None
    saved = str(entry.get("saved") or "")
    if nodes:
        between = ["between ", name_code(nodes[0]), " and ", name_code(nodes[-1])]
    facts: list[tuple[str, Content]] = [
        ("Place", name_code(str(entry.get("place", "")))),
        ("Error of its own", f"relL2 {show_number(entry.get('rel_l2'))}"),
        ("Rounding explains", show_number(entry.get("bound"))),
        ("Nodes", between),
        ("Smallest model that shows it", name_code(saved) if saved else ""),
    ]
    return tag("article", tag("h3", "Unknown cause"), _list(facts))


def _list(facts: list[tuple[str, Content]]) -> Markup:
    return fact_list([(term, [value]) for term, value in facts if value])


def show_own_errors(diagnosis: Mapping[str, Any]) -> Section | None:
    """Each layer by itself, fed the folder's stream: where errors enter."""
    entries = [
        {
            "name": layer.get("name"),
            "rel_l2": layer.get("own_rel_l2"),
            "noise_rel_l2": layer.get("bound"),
            "value": layer.get("value"),
        }
        for layer in list_of_mappings(diagnosis.get("layers"))
    ]
    if not entries:
        return None
    shown = (
        "PyTorch runs each layer on the stream that the folder has before it, so only an error of "
        "the layer's own shows; the noise is what rounding explains."
    )
    return plot_layers(entries, "entering", "Where errors enter", shown)


def show_loss(diagnosis: Mapping[str, Any]) -> Section | None:
    """What quantization costs a folder that has no fault."""
    loss = diagnosis.get("loss")
    if not isinstance(loss, Mapping):
        return None
    facts: list[tuple[str, Content]] = [
        ("relL2 of the logits", show_number(loss.get("rel_l2"))),
        ("corr of the logits", show_number(loss.get("corr"))),
        ("relL2 as shipped", show_number(loss.get("as_shipped"))),
    ]
    rows = [(name_code(str(name)), show_number(value)) for name, value in loss.get("tensors") or ()]
    table = simple_table("Worst tensors", ("Tensor", "relL2"), rows, numeric=("relL2",))
    lead = "Weights decode as their grid allows and the graph is right: this is no fault."
    return Section("loss", "Quantization loss", lead, [_list(facts), table])


def show_tried(diagnosis: Mapping[str, Any]) -> Section | None:
    """Causes that were tried and explain nothing, and notes."""
    tried = [str(name) for name in diagnosis.get("ruled_out") or ()]
    notes = [str(note) for note in diagnosis.get("notes") or ()]
    if not tried and not notes:
        return None
    body: list[Content] = []
    if tried:
        body.append(
            tag(
                "p",
                "Tried, and explains nothing: ",
                join([name_code(name) for name in tried], ", "),
            )
        )
    if notes:
        body.append(tag("ul", [tag("li", note) for note in notes]))
    return Section("tried", "Ruled out and noted", "What else the doctor looked at.", body)
