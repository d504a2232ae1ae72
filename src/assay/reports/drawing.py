"""Drawings in SVG: panels with axes, lines, bounds and marks.

Each drawing is made twice, for wide windows and for phones, so that its letters stay legible;
the style sheet shows one of them. Colours are the style sheet's, by class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assay.reports.markup import Content, Markup, tag
from assay.reports.numbers import show_number
from assay.reports.scales import Scale

__all__ = [
    "SHEETS",
    "Panel",
    "Sheet",
    "Swatch",
    "draw_bound",
    "draw_crosses",
    "draw_dots",
    "draw_grid",
    "draw_line",
    "draw_mark",
    "draw_x_axis",
    "figure",
]

_LETTER = 7.0  # about the width of one, in a drawing's units
_X_AXIS = 40.0  # the height of ticks, labels and title


@dataclass(frozen=True)
class Sheet:
    """One of the two sizes. num_bins: how many points of a long series fit."""

    name: str
    width: float
    left: float
    right: float
    num_bins: int
    num_ticks: int

    def scale_x(self, low: float, high: float) -> Scale:
        """The horizontal scale, the same in every panel of a drawing."""
        return Scale(low, high, self.left, self.width - self.right)


SHEETS = (
    Sheet("wide", 960, left=64, right=20, num_bins=430, num_ticks=10),
    Sheet("narrow", 340, left=56, right=8, num_bins=140, num_ticks=4),
)


@dataclass(frozen=True)
class Panel:
    """A rectangle with its own vertical scale."""

    sheet: Sheet
    x: Scale
    y: Scale

    @property
    def bottom(self) -> float:
        """Its lower edge."""
        return self.y.start


@dataclass(frozen=True)
class Swatch:
    """A line of the legend. kind: the class of the line or mark that it explains."""

    kind: str
    text: str


Draw = Callable[[Sheet], tuple[float, Content]]


def figure(
    identity: str, title: str, description: str, draw: Draw, legend: Sequence[Swatch]
) -> Markup:
    """A drawing in both sizes, with its legend and a description for those who don't see it.

    identity: unique in the page. draw: gives the height and what is drawn.
    """
    drawings = []
    for sheet in SHEETS:
        height, content = draw(sheet)
        name = f"{identity}-{sheet.name}"
        drawings.append(
            tag(
                "svg",
                tag("title", title, id=f"{name}-title"),
                tag("desc", description, id=f"{name}-text"),
                content,
                viewBox=f"0 0 {sheet.width:g} {height:g}",
                class_=f"plot {sheet.name}",
                role="img",
                aria_labelledby=f"{name}-title",
                aria_describedby=f"{name}-text",
            )
        )
    keys = [tag("li", _draw_swatch(swatch.kind), swatch.text) for swatch in legend]
    return tag("figure", tag("figcaption", tag("ul", keys, class_="legend")), drawings)


def draw_grid(panel: Panel, title: str, num_ticks: int = 4) -> Markup:
    """Horizontal lines with their values, and the panel's title above them."""
    left, right = panel.x.start, panel.x.stop
    lines = []
    for tick in panel.y.list_ticks(num_ticks):
        y = panel.y.place(tick)
        if panel.bottom - y > 1:  # else it would lie on the axis
            lines.append(tag("line", x1=left, x2=right, y1=y, y2=y, class_="grid"))
        lines.append(tag("text", show_number(tick), x=left - 8, y=y + 4.5, class_="tick end"))
    heading = tag("text", title, x=0, y=panel.y.stop - 10, class_="panel-title")
    return tag("g", lines, heading)


def draw_x_axis(panel: Panel, title: str) -> tuple[float, Markup]:
    """Whole numbers below a panel; returns the height that the drawing needs, and the axis."""
    bottom = panel.bottom
    parts = [
        tag("line", x1=panel.x.start, x2=panel.x.stop, y1=bottom, y2=bottom, class_="axis"),
    ]
    for tick in panel.x.list_whole_ticks(panel.sheet.num_ticks):
        x = panel.x.place(tick)
        parts.append(tag("line", x1=x, x2=x, y1=bottom, y2=bottom + 5, class_="axis"))
        parts.append(tag("text", show_number(tick), x=x, y=bottom + 19, class_="tick middle"))
    middle = (panel.x.start + panel.x.stop) / 2
    parts.append(tag("text", title, x=middle, y=bottom + _X_AXIS - 4, class_="tick middle"))
    return bottom + _X_AXIS, tag("g", parts)


def draw_line(panel: Panel, points: Sequence[tuple[float, float | None]], kind: str) -> Markup:
    """A line through points (x, value), broken where a value is missing."""
    steps, pen_down, drawn = [], False, 0
    for x, value in points:
        if value is None:
            pen_down = False
            continue
        place = f"{panel.x.place(x):.1f} {panel.y.place(value):.1f}"
        steps.append(f"{'L' if pen_down else 'M'}{place}")
        pen_down, drawn = True, drawn + 1
    return tag("path", d="".join(steps), class_=f"line {kind}") if drawn else Markup("")


def draw_dots(panel: Panel, points: Sequence[tuple[float, float | None]], kind: str) -> Markup:
    """A dot at each point that has a value."""
    return tag(
        "g",
        [
            tag("circle", cx=panel.x.place(x), cy=panel.y.place(value), r=3)
            for x, value in points
            if value is not None
        ],
        class_=f"dots {kind}",
    )


def draw_bound(panel: Panel, value: float, text: str, *, at_left: bool = False) -> Markup:
    """A dashed line across the panel, its name at the right end or at the left."""
    y, left, right = panel.y.place(value), panel.x.start, panel.x.stop
    kind = "label bound-text" if at_left else "label bound-text end"
    return tag(
        "g",
        tag("line", x1=left, x2=right, y1=y, y2=y, class_="bound"),
        tag("text", text, x=left + 4 if at_left else right - 4, y=y - 6, class_=kind),
    )


def draw_mark(
    panel: Panel, x: float, value: float, text: str, *, line: float | None = None
) -> Markup:
    """A ring around one point, with a label above it.

    line: a value where a line runs across the panel, which the label doesn't cover.
    """
    place, y = panel.x.place(x), panel.y.place(value)
    baseline = y - 11
    if line is not None and baseline - 14 < panel.y.place(line) < baseline + 6:
        baseline = panel.y.place(line) - 7
    return tag(
        "g",
        tag("circle", cx=place, cy=y, r=5, class_="ring"),
        _draw_label(panel, place, baseline, text),
    )


def _draw_label(panel: Panel, place: float, baseline: float, text: str) -> Markup:
    """A label above a place, moved aside where it would leave the panel."""
    half = len(text) * _LETTER / 2
    if place - half < panel.x.start:
        return tag("text", text, x=panel.x.start + 2, y=baseline, class_="label")
    if place + half > panel.x.stop:
        return tag("text", text, x=panel.x.stop, y=baseline, class_="label end")
    return tag("text", text, x=place, y=baseline, class_="label middle")


def _draw_swatch(kind: str) -> Markup:
    marks = {
        "ring": tag("circle", cx=12, cy=6, r=4.5, class_="ring"),
        "miss": tag("line", x1=12, x2=12, y1=0, y2=12, class_="miss"),
        "lost": _draw_cross(12, 6),
        "bound": tag("line", x1=0, x2=24, y1=6, y2=6, class_="bound"),
    }
    line = tag("path", d="M0 6L24 6", class_=f"line {kind}")
    return tag(
        "svg", marks.get(kind, line), viewBox="0 0 24 12", class_="swatch", aria_hidden="true"
    )


def _draw_cross(x: float, y: float) -> Markup:
    path = f"M{x - 3.5:g} {y - 3.5:g}l7 7m0 -7l-7 7"
    return tag("path", d=path, class_="lost")


def draw_crosses(panel: Panel, places: Sequence[float]) -> Markup:
    """A cross at the top edge for each place without a number."""
    return tag("g", [_draw_cross(panel.x.place(x), panel.y.stop + 5) for x in places])
