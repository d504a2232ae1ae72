"""The columns of `positions`, in words and as a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.reports.check_names import describe_check
from assay.reports.markup import Markup
from assay.reports.numbers import as_float, count, show_corr, show_number, show_share
from assay.reports.tables import fold, simple_table

__all__ = ["PositionTable", "describe_positions", "list_worst", "read_positions", "tell_positions"]

_NUM_WORST = 20


@dataclass(frozen=True)
class PositionTable:
    """The columns of `positions`, one value a position; None is no number."""

    setting: str
    rel_l2: list[float | None]
    kl: list[float | None]
    agrees: list[bool]
    noise: list[float | None]
    bound: float | None
    columns: Mapping[str, Any]

    @property
    def worst(self) -> int | None:
        """The position with the largest relL2, the first of equals."""
        found = [p for p, value in enumerate(self.rel_l2) if value is not None]
        return max(found, key=lambda p: (self.rel_l2[p], -p)) if found else None

    @property
    def misses(self) -> list[int]:
        """Positions where the argmax differs."""
        return [p for p, agrees in enumerate(self.agrees) if not agrees]

    @property
    def lost(self) -> list[int]:
        """Positions where relL2 is no number."""
        return [p for p, value in enumerate(self.rel_l2) if value is None]

    def at(self, column: str, position: int) -> Any:
        """A column's value at a position, None where it has none."""
        values = self.columns.get(column)
        if not isinstance(values, (list, tuple)) or position >= len(values):
            return None
        return values[position]


def read_positions(verdict: Mapping[str, Any]) -> PositionTable | None:
    """The columns of a verdict's `positions`, or None where there are none."""
    columns = verdict.get("positions")
    if not isinstance(columns, Mapping) or not columns.get("rel_l2"):
        return None
    return PositionTable(
        setting=describe_check(str(columns.get("setting", "prefill"))).plain,
        rel_l2=_floats(columns.get("rel_l2")),
        kl=_floats(columns.get("kl")),
        agrees=[value is not False for value in columns.get("argmax_agrees") or ()],
        noise=_floats(columns.get("noise_rel_l2")),
        bound=as_float(columns.get("bound_rel_l2")),
        columns=columns,
    )


def tell_positions(table: PositionTable) -> str:
    told = [f"Setting: {table.setting}, {count(len(table.rel_l2), 'token')}."]
    if table.worst is not None:
        value = show_number(table.rel_l2[table.worst])
        token = table.at("token_ids", table.worst)
        named = f" (id {token})" if token is not None else ""
        told.append(f"The worst is token {table.worst}{named} with relL2 {value}.")
    if table.agrees:
        told.append(
            f"The argmax differs at {count(len(table.misses), 'position')}, near ties included."
        )
    if table.lost:
        told.append(f"At {count(len(table.lost), 'position')} relL2 is no number.")
    return " ".join(told)


def describe_positions(table: PositionTable) -> str:
    """The plot in words."""
    found = [value for value in table.rel_l2 if value is not None]
    told = [tell_positions(table)]
    if found:
        told.append(f"relL2 runs from {show_number(min(found))} to {show_number(max(found))}.")
    if table.bound is not None:
        told.append(f"Its bound is {show_number(table.bound)}.")
    kl = [value for value in table.kl if value is not None]
    if kl:
        told.append(f"KL runs from {show_number(min(kl))} to {show_number(max(kl))} nats.")
    return " ".join(told)


def list_worst(table: PositionTable) -> Markup:
    """The worst positions as a table."""
    lost = [(p, float("inf")) for p in table.lost]
    ranked = lost + [(p, value) for p, value in enumerate(table.rel_l2) if value is not None]
    ranked.sort(key=lambda item: (-item[1], item[0]))
    rows = [
        (
            f"{p}",
            str(table.at("token_ids", p) if table.at("token_ids", p) is not None else ""),
            show_number(table.rel_l2[p]),
            show_corr(table.at("corr", p)),
            show_number(table.at("max_abs", p)),
            show_number(table.at("kl", p)),
            "" if p >= len(table.agrees) else ("agrees" if table.agrees[p] else "differs"),
            show_share(table.at("top10_overlap", p)),
        )
        for p, _ in ranked[:_NUM_WORST]
    ]
    columns = (
        "Token", "Id", "relL2", "corr", "Largest difference", "KL, nats", "Argmax",
        "Top ten in common",
    )  # fmt: skip
    numeric = [c for c in columns if c != "Argmax"]
    body = simple_table("Worst positions", columns, rows, numeric=numeric)
    return fold(f"The {count(len(rows), 'worst position')} in numbers", body)


def _floats(values: Any) -> list[float | None]:
    return [as_float(v) for v in values] if isinstance(values, (list, tuple)) else []
