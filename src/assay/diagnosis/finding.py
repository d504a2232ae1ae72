"""What the doctor says: causes with place, confidence, evidence and fix."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

__all__ = ["Cause", "Diagnosis"]

Health = Literal["healthy", "explained", "partly_explained", "unexplained"]


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One fault.

    id: of the catalogue (docs/causes.md). place: Hugging Face module path, `*` for every layer.
    confidence: 0 to 1, the share of the error's logarithm (down to the noise) that it removes.
    evidence: numbers, in words. fix: what to change.
    """

    id: str
    place: str
    confidence: float
    evidence: str
    fix: str


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The outcome for one folder.

    error, left: relL2 of the logits before and after the causes are granted; bound: what counts as
    none. first_bad_layer: where the residual stream parts, "" where it doesn't. ruled_out: ids
    that were tried and changed nothing for the better. notes: what else was seen.
    """

    health: Health
    folder: str
    reference: str
    causes: tuple[Cause, ...]
    error: float
    left: float
    bound: float
    first_bad_layer: str = ""
    ruled_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    layers: tuple[dict[str, Any], ...] = field(default=(), repr=False)

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
            lines.append(f"  relL2 of the logits {self.error:.3g}, bound {self.bound:.3g}")
        if self.first_bad_layer:
            lines.append(f"  the residual stream parts in {self.first_bad_layer}")
        for number, cause in enumerate(self.causes, start=1):
            lines.append(f"  {number}. {cause.id} at {cause.place} ({cause.confidence:.0%} sure)")
            lines.append(f"     {cause.evidence}")
            lines.append(f"     fix: {cause.fix}")
        if self.health == "partly_explained":
            lines.append(f"  with these granted, relL2 {self.left:.3g} is left unexplained")
        if not self.causes and self.health == "unexplained":
            lines.append(f"  no known cause fits; ruled out: {', '.join(self.ruled_out)}")
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)
