"""Tables that scroll inside their own box, and folded parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from assay.reports.markup import Content, Markup, join, tag

__all__ = ["fact_list", "fold", "scroll_box", "simple_table"]

_LONG = 60  # letters from which a fact gets the whole width


def simple_table(
    label: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Content]],
    *,
    numeric: Sequence[str] = (),
    class_: str | None = None,
) -> Markup:
    """A table whose first column heads its rows.

    label: what the table is, for those who don't see it. numeric: columns set to the right.
    """
    kinds = ["number" if column in numeric else None for column in columns]
    head = [
        tag("th", column, scope="col", class_=kind)
        for column, kind in zip(columns, kinds, strict=True)
    ]
    body = [
        tag(
            "tr",
            tag("th", row[0], scope="row", class_=kinds[0]),
            [tag("td", cell, class_=k) for cell, k in zip(row[1:], kinds[1:], strict=True)],
        )
        for row in rows
    ]
    table = tag("table", tag("thead", tag("tr", head)), tag("tbody", body), class_=class_)
    return scroll_box(label, table)


def scroll_box(label: str, content: Content) -> Markup:
    """A box that scrolls sideways, by keyboard too."""
    return tag("div", content, class_="scroll", role="region", aria_label=label, tabindex=0)


def fold(summary: str, content: Content) -> Markup:
    """A part that opens on demand, without any script."""
    return tag("details", tag("summary", summary), content)


def fact_list(facts: Iterable[tuple[str, Content]]) -> Markup:
    """Pairs of a term and what stands for it; those with nothing are left out."""
    pairs = [
        tag("div", tag("dt", term), tag("dd", value), class_="long" if _is_long(value) else None)
        for term, value in facts
        if value
    ]
    return tag("dl", join(pairs), class_="facts") if pairs else Markup("")


def _is_long(value: Content) -> bool:
    return isinstance(value, str) and not isinstance(value, Markup) and len(value) > _LONG
