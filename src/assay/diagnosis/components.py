"""Which part of a layer makes its error: attention, or what comes after it.

A layer whose branches follow one another has the stream between them as a separator of the graph.
The reference's own value there, fed the folder's stream, tells what attention does wrongly; the
rest of the layer, fed the folder's value there, what comes after it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.diagnosis.alignment import Alignment
from assay.diagnosis.graph_map import Separator
from assay.diagnosis.hypothesis import list_layers
from assay.diagnosis.isolation import Isolation
from assay.verification.candidate import Candidate

__all__ = ["Component", "isolate_components"]

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Component:
    """A branch of a layer. name: module path. rel_l2: of its own error, None where unknown.

    first, last: separators of the graph between which it lies.
    """

    name: str
    rel_l2: float | None
    first: Separator
    last: Separator


def isolate_components(
    candidate: Candidate, alignment: Alignment, isolation: Isolation, segment: int
) -> list[Component]:
    """The branches of one layer with their own errors; one entry where they can't be told apart."""
    place = segment - 1
    if not 0 <= place < len(alignment.streams) - 1:
        return []
    first, last = alignment.streams[place], alignment.streams[place + 1]
    _, layer = list_layers(isolation.model)[place]
    name = isolation.names[segment]
    whole = [Component(name, None, first, last)]
    second = _find_child(layer, ("mlp", "feed_forward", "block_sparse_moe", "moe", "ffn"))
    branch = _find_child(layer, ("self_attn", "attn", "attention", "linear_attn", "mixer"))
    middle = _find_middle(alignment, first, last)
    if second is None or branch is None or middle is None:
        return whole
    reader = _find_reader(isolation, segment, layer, second[1])
    between_SH = _read(candidate, alignment, middle, isolation)
    own_SH, _ = _run(isolation, segment, reader, None)
    if own_SH is None or own_SH.shape != between_SH.shape:
        return whole
    _, output_SH = _run(isolation, segment, reader, between_SH)
    target_SH = isolation.streams.streams_SH[segment]
    rest = None
    if output_SH is not None:  # the residual is still the reference's own
        rest = _relative(output_SH - own_SH + between_SH, target_SH)
    return [
        Component(f"{name}.{branch[0]}", _relative(own_SH, between_SH), first, middle),
        Component(f"{name}.{second[0]}", rest, middle, last),
    ]


def _find_child(layer: Any, names: tuple[str, ...]) -> tuple[str, Any] | None:
    return next(((n, m) for n, m in layer.named_children() if n in names), None)


def _find_middle(alignment: Alignment, first: Separator, last: Separator) -> Separator | None:
    """The one separator between two streams; None where there are none or more."""
    between = [s for s in alignment.graph.separators if first.position < s.position < last.position]
    return between[0] if len(between) == 1 else None


def _read(
    candidate: Candidate, alignment: Alignment, separator: Separator, isolation: Isolation
) -> Array:
    saved = alignment.streams
    alignment.streams = [separator]
    try:
        (stream,) = alignment.read_streams(candidate, isolation.streams.ids_S)
    finally:
        alignment.streams = saved
        candidate.close()
    return stream


def _find_reader(isolation: Isolation, segment: int, layer: Any, branch: Any) -> Any:
    """What reads the stream before a branch: its norm, or the branch itself."""
    outputs: list[tuple[Any, Any]] = []
    found: list[Any] = []

    def enter(_: Any, args: tuple[Any, ...]) -> None:
        found.append(next((m for m, o in outputs if args and o is args[0]), branch))

    handles = [branch.register_forward_pre_hook(enter)]
    for name, child in layer.named_children():
        if "norm" in name:
            handles.append(
                child.register_forward_hook(lambda m, _, output: outputs.append((m, output)))
            )
    try:
        isolation.run(segment)
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else branch


def _run(
    isolation: Isolation, segment: int, reader: Any, forced_SH: Array | None
) -> tuple[Array | None, Array | None]:
    """What a module of a layer reads, and the layer's output; with another input if given."""
    import torch

    read: list[Array] = []

    def enter(_: Any, args: tuple[Any, ...]) -> Any:
        hidden = args[0]
        read.append(hidden.detach()[0].float().cpu().numpy().copy())
        if forced_SH is None:
            return None
        forced = torch.from_numpy(forced_SH).to(hidden).reshape(hidden.shape)
        return (forced, *args[1:])

    handle = reader.register_forward_pre_hook(enter)
    try:
        output = isolation.run(segment)
    except (RuntimeError, ValueError, TypeError):
        return None, None
    finally:
        handle.remove()
    return (read[0] if read else None), output


def _relative(a: Array, b: Array) -> float:
    error = float(np.linalg.norm(a.astype(np.float64) - b))
    return error / max(float(np.linalg.norm(b)), 1e-30)
