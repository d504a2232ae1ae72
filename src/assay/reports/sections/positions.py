"""Agreement position by position: relL2, KL, and where the argmax differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.reports.drawing import (
    Panel,
    Sheet,
    Swatch,
    draw_bound,
    draw_crosses,
    draw_dots,
    draw_grid,
    draw_line,
    draw_mark,
    draw_x_axis,
    figure,
)
from assay.reports.markup import Content, Markup, tag
from assay.reports.numbers import show_number
from assay.reports.position_table import (
    PositionTable,
    describe_positions,
    list_worst,
    read_positions,
    tell_positions,
)
from assay.reports.scales import Scale, fit_log
from assay.reports.section import Section
from assay.reports.thinning import split_bins, thin

__all__ = ["show_positions"]

_FEW = 60  # positions that get a dot each
_NUM_TIPS = 160


def show_positions(verdict: Mapping[str, Any]) -> Section | None:
    """Plots of `positions`, and a table of the worst ones."""
    table = read_positions(verdict)
    if table is None:
        return None
    plot = figure(
        "positions-plot",
        "Agreement by position",
        describe_positions(table),
        _Drawing(table).draw,
        _list_swatches(table),
    )
    body = [plot, list_worst(table)]
    return Section("positions", "Position by position", tell_positions(table), body)


def _list_swatches(table: PositionTable) -> list[Swatch]:
    kinds = [Swatch("candidate", "folder against reference, the highest of each stretch")]
    if any(value is not None for value in table.noise):
        kinds.append(Swatch("noise", "the reference's own noise"))
    if table.bound is not None:
        kinds.append(Swatch("bound", "bound of the whole prompt"))
    kinds.append(Swatch("ring", "worst token"))
    if table.misses:
        kinds.append(Swatch("miss", "argmax differs"))
    if table.lost:
        kinds.append(Swatch("lost", "no number"))
    return kinds


@dataclass(frozen=True)
class _Drawing:
    """Three panels over one axis: relL2, a strip of argmax misses, KL."""

    table: PositionTable

    def draw(self, sheet: Sheet) -> tuple[float, Content]:
        """Everything from top to bottom."""
        x = sheet.scale_x(0, max(1, len(self.table.rel_l2) - 1))
        first = Panel(sheet, x, Scale(*self._fit_rel_l2(), start=236, stop=30, log=True))
        strip_top = first.bottom + 10
        parts = [self._draw_rel_l2(first), self._draw_misses(sheet, x, strip_top)]
        last = Panel(sheet, x, Scale(0, 1, start=strip_top + 18, stop=strip_top))
        if any(value is not None for value in self.table.kl):
            top = strip_top + 56
            last = Panel(
                sheet, x, Scale(*fit_log(self.table.kl), start=top + 120, stop=top, log=True)
            )
            parts.append(draw_grid(last, "KL, nats", 3))
            parts.append(self._draw_series(last, self.table.kl, "candidate"))
        height, axis = draw_x_axis(last, "token of the prompt")
        parts.append(axis)
        if sheet.name == "wide":
            parts.append(self._draw_tips(x, first.y.stop, last.bottom))
        return height, parts

    def _fit_rel_l2(self) -> tuple[float, float]:
        return fit_log([*self.table.rel_l2, *self.table.noise, self.table.bound])

    def _draw_rel_l2(self, panel: Panel) -> Markup:
        table = self.table
        parts = [draw_grid(panel, "relL2"), self._draw_series(panel, table.noise, "noise")]
        worst = table.worst
        if table.bound is not None:
            on_right = worst is not None and worst > 0.6 * len(table.rel_l2)
            text = f"bound {show_number(table.bound)}"
            parts.append(draw_bound(panel, table.bound, text, at_left=on_right))
        parts.append(self._draw_series(panel, table.rel_l2, "candidate"))
        if worst is not None:
            value = table.rel_l2[worst]
            assert value is not None
            text = f"token {worst}: {show_number(value)}"
            parts.append(draw_mark(panel, worst, value, text, line=table.bound))
        gaps = [b.start for b in thin(table.rel_l2, panel.sheet.num_bins) if b.has_gap]
        return tag("g", parts, draw_crosses(panel, gaps))

    def _draw_series(self, panel: Panel, values: Sequence[float | None], kind: str) -> Markup:
        bins = thin(values, panel.sheet.num_bins)
        points = [(float(b.place), b.peak) for b in bins]
        line = draw_line(panel, points, kind)
        few = len(values) <= _FEW and kind == "candidate"
        return tag("g", line, draw_dots(panel, points, kind) if few else None)

    def _draw_misses(self, sheet: Sheet, x: Scale, top: float) -> Markup:
        """A tick for each stretch with a miss, in a strip of its own."""
        bins = split_bins(len(self.table.agrees), sheet.num_bins)
        missed = ([p for p in b if not self.table.agrees[p]] for b in bins)
        places = [found[0] for found in missed if found]
        ticks = [
            tag("line", x1=x.place(p), x2=x.place(p), y1=top, y2=top + 18, class_="miss")
            for p in places
        ]
        frame = tag("rect", x=x.start, y=top, width=x.stop - x.start, height=18, class_="strip")
        name = tag("text", "argmax", x=x.start - 8, y=top + 13.5, class_="tick end")
        return tag("g", frame, ticks, name)

    def _draw_tips(self, x: Scale, top: float, bottom: float) -> Markup:
        """Unseen columns whose titles a browser shows under the pointer."""
        columns = []
        for b in split_bins(len(self.table.rel_l2), _NUM_TIPS):
            left, right = x.place(b.start - 0.5), x.place(b.stop - 0.5)
            columns.append(
                tag("rect", tag("title", self._tell(b)), x=left, y=top,
                    width=max(right - left, 1.0), height=bottom - top, class_="tip")
            )  # fmt: skip
        return tag("g", columns)

    def _tell(self, stretch: range) -> str:
        first, last = stretch.start, stretch.stop - 1
        where = f"token {first}" if first == last else f"tokens {first} to {last}"
        told = [where]
        for name, values in (("relL2", self.table.rel_l2), ("KL", self.table.kl)):
            found = [v for v in values[first : last + 1] if v is not None]
            told.append(f"{name} {'' if first == last else 'up to '}{show_number(max(found))}"
                        if found else f"no {name}")  # fmt: skip
        missed = sum(not agrees for agrees in self.table.agrees[first : last + 1])
        if missed:
            told.append("argmax differs" if first == last else f"argmax differs at {missed}")
        return ", ".join(told)
