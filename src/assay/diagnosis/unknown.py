"""An error whose cause isn't known: where it enters, as narrowly as can be told."""

from __future__ import annotations

from pathlib import Path

from assay.diagnosis.alignment import Alignment
from assay.diagnosis.components import Component, isolate_components
from assay.diagnosis.finding import Entry
from assay.diagnosis.graph_map import Separator
from assay.diagnosis.isolation import Isolation
from assay.diagnosis.minimal_case import save_minimal_case
from assay.errors import RuntimeFolderError
from assay.verification.candidate import Candidate

__all__ = ["describe_entry"]


def describe_entry(
    candidate: Candidate,
    alignment: Alignment,
    isolation: Isolation,
    segment: int,
    error: float,
    save_to: Path | None,
) -> Entry:
    """The branch of a layer in which an error enters, and the nodes of the graph there.

    save_to: a new folder for the smallest model that shows it; only layers can be cut out.
    """
    bound = float(isolation.bounds[segment])
    parts = isolate_components(candidate, alignment, isolation, segment)
    if not parts:
        return Entry(place=isolation.names[segment], rel_l2=error, bound=bound)
    worst = max(parts, key=lambda part: part.rel_l2 or 0.0)
    rel_l2 = error if worst.rel_l2 is None else worst.rel_l2
    saved = ""
    if save_to is not None:
        saved = _save(candidate, alignment, isolation, segment, worst, save_to)
    return Entry(
        place=worst.name,
        rel_l2=rel_l2,
        bound=bound,
        nodes=_name_nodes(alignment, worst.first, worst.last),
        saved=saved,
    )


def _name_nodes(alignment: Alignment, first: Separator, last: Separator) -> tuple[str, ...]:
    """The nodes between two separators that are on the way from the ids to the logits."""
    nodes = alignment.graph.nodes
    between = [p for p in sorted(alignment.graph.relevant) if first.position < p < last.position]
    return tuple(nodes[p].name or nodes[p].op_type for p in between)


def _save(
    candidate: Candidate,
    alignment: Alignment,
    isolation: Isolation,
    segment: int,
    worst: Component,
    save_to: Path,
) -> str:
    expected = isolation.run(segment)
    assert expected is not None
    said = (
        f"An error enters in {worst.name}. The whole layer is cut out: its input is the graph's "
        "own, its weights are the graph's own, and its output isn't what PyTorch gives with both."
    )
    try:
        written = save_minimal_case(
            save_to,
            candidate,
            isolation.streams.ids_S,
            first=alignment.streams[segment - 1],
            last=alignment.streams[segment],
            expected_SH=expected,
            said=said,
        )
    except RuntimeFolderError as exc:
        return f"not saved: {exc.found}"
    return str(written)
