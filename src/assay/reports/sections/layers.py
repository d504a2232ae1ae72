"""The residual stream after each decoder layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.reports.drawing import (
    Panel,
    Sheet,
    Swatch,
    draw_crosses,
    draw_dots,
    draw_grid,
    draw_line,
    draw_mark,
    draw_x_axis,
    figure,
)
from assay.reports.markup import Content, Markup, name_code, tag
from assay.reports.numbers import NO_NUMBER, as_float, count, show_corr, show_number
from assay.reports.scales import Scale, fit_log
from assay.reports.section import Section, list_of_mappings
from assay.reports.tables import fold, simple_table
from assay.reports.thinning import thin

__all__ = ["plot_layers", "show_layers"]

_STREAM = (
    "The residual stream after each decoder layer, folder against reference on the same tokens."
)
_FEW = 120  # layers that get a dot each
_NUM_TIPS = 200


@dataclass(frozen=True)
class _Layers:
    """One entry a layer; None where nothing of the graph was near, or no number came out."""

    names: list[str]
    rel_l2: list[float | None]
    corr: list[float | None]
    noise: list[float | None]

    @property
    def worst(self) -> int | None:
        """The layer with the largest relL2, the first of equals."""
        found = [i for i, value in enumerate(self.rel_l2) if value is not None]
        return max(found, key=lambda i: (self.rel_l2[i], -i)) if found else None


def show_layers(verdict: Mapping[str, Any]) -> Section | None:
    """Plots of `layers`, and all of them as a table."""
    entries = list_of_mappings(verdict.get("layers"))
    return plot_layers(entries, "layers", "Layer by layer", _STREAM) if entries else None


def plot_layers(
    entries: Sequence[Mapping[str, Any]], identity: str, title: str, shown: str
) -> Section:
    """A section of layers with `name`, `rel_l2`, and perhaps `corr` and `noise_rel_l2`.

    shown: what the numbers are of, in a sentence.
    """
    layers = _Layers(
        [str(entry.get("name", "")) for entry in entries],
        [as_float(entry.get("rel_l2")) for entry in entries],
        [as_float(entry.get("corr")) for entry in entries],
        [as_float(entry.get("noise_rel_l2")) for entry in entries],
    )
    lead = _lead(layers, shown)
    plot = figure(
        f"{identity}-plot", title, _describe(layers, shown), _Drawing(layers).draw,
        _list_swatches(layers),
    )  # fmt: skip
    return Section(identity, title, lead, [plot, _list_layers(entries)])


def _lead(layers: _Layers, shown: str) -> str:
    told = [shown]
    worst = layers.worst
    if worst is not None:
        told.append(
            f"The worst is {layers.names[worst]} with relL2 {show_number(layers.rel_l2[worst])}."
        )
    lost = sum(value is None for value in layers.rel_l2)
    if lost:
        told.append(f"Of {count(lost, 'layer')} there is no number.")
    return " ".join(told)


def _describe(layers: _Layers, shown: str) -> str:
    """The plot in words: where it begins and ends."""
    found = [(i, value) for i, value in enumerate(layers.rel_l2) if value is not None]
    told = [_lead(layers, shown)]
    if found:
        (first, begin), (last, end) = found[0], found[-1]
        told.append(
            f"relL2 begins with {show_number(begin)} at {layers.names[first]} and ends with "
            f"{show_number(end)} at {layers.names[last]}."
        )
    return " ".join(told)


def _list_swatches(layers: _Layers) -> list[Swatch]:
    kinds = [Swatch("candidate", "folder against reference")]
    if any(value is not None for value in layers.noise):
        kinds.append(Swatch("noise", "the reference's own noise"))
    kinds.append(Swatch("ring", "worst layer"))
    if any(value is None for value in layers.rel_l2):
        kinds.append(Swatch("lost", "no number"))
    return kinds


@dataclass(frozen=True)
class _Drawing:
    """Two panels over one axis: relL2 and corr."""

    layers: _Layers

    def draw(self, sheet: Sheet) -> tuple[float, Content]:
        """Everything from top to bottom."""
        layers = self.layers
        x = sheet.scale_x(0, max(1, len(layers.names) - 1))
        ends = fit_log([*layers.rel_l2, *layers.noise])
        first = Panel(sheet, x, Scale(*ends, start=210, stop=30, log=True))
        parts = [
            draw_grid(first, "relL2"),
            self._draw_series(first, layers.noise, "noise"),
            self._draw_series(first, layers.rel_l2, "candidate"),
            draw_crosses(first, [i for i, value in enumerate(layers.rel_l2) if value is None]),
        ]
        worst = layers.worst
        if worst is not None:
            value = layers.rel_l2[worst]
            assert value is not None
            parts.append(draw_mark(first, worst, value, f"layer {worst}: {show_number(value)}"))
        last = first
        corr = [value for value in layers.corr if value is not None]
        if corr:
            low = 0.0 if min(corr) >= 0 else -1.0
            last = Panel(sheet, x, Scale(low, 1, start=324, stop=254))
            parts.append(draw_grid(last, "corr", 2))
            parts.append(self._draw_series(last, layers.corr, "candidate", lowest=True))
        height, axis = draw_x_axis(last, "decoder layer")
        parts.append(axis)
        if sheet.name == "wide" and len(layers.names) <= _NUM_TIPS:
            parts.append(self._draw_tips(x, first.y.stop, last.bottom))
        return height, parts

    def _draw_series(
        self, panel: Panel, values: Sequence[float | None], kind: str, *, lowest: bool = False
    ) -> Markup:
        bins = thin(values, panel.sheet.num_bins, lowest=lowest)
        points = [(float(b.place), b.peak) for b in bins]
        few = len(values) <= _FEW and kind == "candidate"
        line = draw_line(panel, points, kind)
        return tag("g", line, draw_dots(panel, points, kind) if few else None)

    def _draw_tips(self, x: Scale, top: float, bottom: float) -> Markup:
        """Unseen columns whose titles a browser shows under the pointer."""
        columns = []
        for i, name in enumerate(self.layers.names):
            left, right = x.place(i - 0.5), x.place(i + 0.5)
            text = (
                f"{name}: relL2 {show_number(self.layers.rel_l2[i])}, "
                f"corr {show_corr(self.layers.corr[i])}"
            )
            columns.append(
                tag("rect", tag("title", text), x=left, y=top, width=max(right - left, 1.0),
                    height=bottom - top, class_="tip")
            )  # fmt: skip
        return tag("g", columns)


def _list_layers(entries: Sequence[Mapping[str, Any]]) -> Markup:
    has_noise = any(as_float(entry.get("noise_rel_l2")) is not None for entry in entries)
    rows = []
    for entry in entries:
        noise = as_float(entry.get("noise_rel_l2"))
        cells: list[Content] = [
            name_code(str(entry.get("name", ""))),
            show_number(entry.get("rel_l2")),
            show_corr(entry.get("corr")),
        ]
        if has_noise:
            cells.append("" if noise is None else show_number(noise))
        value = entry.get("value")
        cells.append(name_code(str(value)) if value else NO_NUMBER)
        rows.append(cells)
    columns = ["Layer", "relL2", "corr", *(["Noise"] if has_noise else []), "Value of the graph"]
    table = simple_table(
        "Layers", columns, rows, numeric=[c for c in columns if c in ("relL2", "corr", "Noise")]
    )
    return fold(f"All {count(len(rows), 'layer')} in numbers", table)
