"""What the doctor says: causes with place, confidence, evidence and fix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

__all__ = ["Cause", "Diagnosis", "Entry", "Health", "LayerFinding", "Loss", "merge_causes"]

Health = Literal["healthy", "explained", "partly_explained", "unexplained"]


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One fault.

    id: of the catalogue (docs/causes.md). place: Hugging Face module path, `*` for every layer;
    the file and key, or the node, for a fault that isn't in what the graph computes.
    confidence: 0 to 1, the share of the error's logarithm (down to the noise) that it removes.
    evidence: numbers, in words. fix: what to change.
    """

    id: str
    place: str
    confidence: float
    evidence: str
    fix: str


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Where an error enters whose cause isn't known.

    place: module path, of a branch where it can be told. rel_l2: of the place's own output, fed
    the folder's stream; bound: what rounding explains. nodes: of the graph, first and last.
    saved: the folder with the smallest model that shows it, "" where none was asked for.
    """

    place: str
    rel_l2: float
    bound: float
    nodes: tuple[str, ...] = ()
    saved: str = ""


@dataclass(frozen=True, kw_only=True)
class LayerFinding:
    """One layer. value: the graph's value that is its stream. rel_l2, corr: of the stream against
    the checkpoint's own, with everything before it. own_rel_l2: of the layer by itself, fed the
    folder's stream; bound: what rounding explains of that."""

    name: str
    value: str
    rel_l2: float
    corr: float
    own_rel_l2: float
    bound: float


@dataclass(frozen=True, kw_only=True)
class Loss:
    """What quantization costs a folder without faults.

    rel_l2, corr: of the logits against the checkpoint's. as_shipped: relL2 with the folder's own
    arithmetic (accuracy_level). tensors: (initializer, relL2 of its values), the worst first.
    """

    rel_l2: float
    corr: float
    as_shipped: float
    tensors: tuple[tuple[str, float], ...]


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The outcome for one folder.

    error: relL2 of the logits. bound: what rounding explains of the last segment. entries: errors
    of unknown cause. ruled_out: ids that were tried and explain nothing. notes: what else was seen.
    layers: empty where they can't be told apart. loss: of a quantized folder without faults.
    """

    health: Health
    folder: str
    reference: str
    causes: tuple[Cause, ...]
    error: float = float("nan")
    bound: float = float("nan")
    entries: tuple[Entry, ...] = ()
    ruled_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    layers: tuple[LayerFinding, ...] = field(default=(), repr=False)
    loss: Loss | None = None

    @property
    def exit_code(self) -> int:
        """0 healthy, 1 otherwise."""
        return 0 if self.health == "healthy" else 1

    def to_json(self) -> dict[str, Any]:
        """Plain data; `causes` is empty for a healthy folder."""
        return {"schema": 1, **asdict(self), "exit_code": self.exit_code}

    def to_text(self) -> str:
        """For a terminal."""
        lines = [f"{self.health.replace('_', ' ').upper()}  {self.folder} against {self.reference}"]
        if self.health != "healthy":
            lines.append(f"  relL2 of the logits {self.error:.3g}")
        first = next((f for f in self.layers if not f.own_rel_l2 <= f.bound), None)
        if first is not None:
            lines.append(
                f"  the first layer with an error of its own is {first.name}: relL2 "
                f"{first.own_rel_l2:.3g}, rounding explains {first.bound:.3g}"
            )
        for number, cause in enumerate(self.causes, start=1):
            lines.append(f"  {number}. {cause.id} at {cause.place} ({cause.confidence:.0%} sure)")
            lines.append(f"     {cause.evidence}")
            lines.append(f"     fix: {cause.fix}")
        lines += [line for entry in self.entries for line in _show_entry(entry)]
        if self.entries:
            lines.append(f"  no known cause fits there; tried: {', '.join(self.ruled_out)}")
        lines += _show_loss(self.loss) if self.loss else []
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)


def _show_entry(entry: Entry) -> list[str]:
    lines = [
        f"  an error of unknown cause enters in {entry.place}: relL2 {entry.rel_l2:.3g}, "
        f"rounding explains {entry.bound:.3g}"
    ]
    if entry.nodes:
        lines.append(f"     between the nodes {entry.nodes[0]} and {entry.nodes[-1]}")
    if entry.saved:
        lines.append(f"     the smallest model that shows it: {entry.saved}")
    return lines


def _show_loss(loss: Loss) -> list[str]:
    lines = [
        f"  quantization loss, no fault: relL2 of the logits {loss.rel_l2:.3g}, corr "
        f"{loss.corr:.4f}; as shipped {loss.as_shipped:.3g}"
    ]
    lines += [f"     {name}: relL2 of the values {value:.3g}" for name, value in loss.tensors]
    return lines


def merge_causes(causes: Sequence[Cause], layers: Sequence[str]) -> list[Cause]:
    """One cause for each id of stored weights that many places share; the others as they are."""
    groups: dict[str, list[Cause]] = {}
    for number, cause in enumerate(causes):
        single = "*" in cause.place or "{" in cause.place
        groups.setdefault(f"{cause.id} {number}" if single else cause.id, []).append(cause)
    merged = []
    for group in groups.values():
        places = list(dict.fromkeys(p for c in group for p in c.place.split(", ")))
        more = f"; {len(group)} times" if len(group) > 1 else ""
        merged.append(
            replace(
                group[0],
                place=", ".join(_generalize(places, layers)),
                confidence=min(cause.confidence for cause in group),
                evidence=group[0].evidence + more,
            )
        )
    return merged


def _generalize(places: list[str], layers: Sequence[str]) -> list[str]:
    """Places that every layer has, with `*` for its number."""
    kept: list[str] = []
    parent = layers[0].rsplit(".", 1)[0] if layers else ""
    for place in places:
        own = next((layer for layer in layers if f"{place}.".startswith(f"{layer}.")), None)
        tail = place[len(own) :] if own is not None else ""
        if own is not None and len(layers) > 1 and all(f"{x}{tail}" in places for x in layers):
            place = f"{parent}.*{tail}"
        if place not in kept:
            kept.append(place)
    return kept
