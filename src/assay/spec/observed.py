"""How the experts of a live module lie, read off the module itself.

Nothing here imports torch: a module is anything with `named_children` and `named_parameters`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from assay.spec.moe import ExpertLayout

__all__ = ["ObservedLayout", "find_experts", "observed_expert_layout"]

_NUMBERED = re.compile(r"(expert_)?\d+")
_FLAGS = ("is_transposed", "is_concatenated", "has_bias", "has_gate")
# What fused experts are called in transformers 4 and 5, down last.
_FUSED_NAMES: tuple[tuple[str, ...], ...] = (
    ("gate_proj", "up_proj", "down_proj"),
    ("gate_up_proj", "down_proj"),
    ("up_proj", "down_proj"),
    ("fc1", "fc2"),
    ("input_linear", "output_linear"),
)
_FLAT_NAMES = ("w1", "v1", "w2")
# Classes that don't say what they hold: layers in a list could pass for experts.
_PLAIN = ("ModuleDict", "ModuleList", "Sequential")


@dataclass(frozen=True, kw_only=True)
class ObservedLayout(ExpertLayout):
    """A layout as a module shows it.

    path: of the container, relative to the module asked ("" for the module itself).
    names: its linears or parameters, relative to the container: of fused and flat containers
    those that hold the weights, of iterable ones the linears of the first expert.
    """

    path: str
    names: tuple[str, ...]
    num_experts: int


def observed_expert_layout(module: Any) -> ObservedLayout | None:
    """Return how a block's experts, or a container of experts, lie; None where there are none.

    The flags that transformers 5 sets on fused containers are believed; without them, what the
    shapes can't tell is None. A plain list doesn't say what it holds: one of MLPs is read as
    experts, one of anything else isn't.
    """
    experts = getattr(module, "experts", None)
    for path, container in (("experts", experts), ("", module)):
        if not hasattr(container, "named_children"):
            continue
        found = (
            _read_iterable(path, container)
            or _read_fused(path, container)
            or _read_flat(path, container)
        )
        if found is not None:
            return found
    return None


def find_experts(module: Any) -> list[Any]:
    """Return the experts of an iterable container (a block's, or the module itself), in order.

    What stands among them without linears of its own (an identity) is no expert.
    """
    experts: Any = getattr(module, "experts", None)
    container: Any = experts if hasattr(experts, "named_children") else module
    if not hasattr(container, "named_children"):
        return []
    return [
        child
        for name, child in container.named_children()
        if _NUMBERED.fullmatch(name) and any(True for _ in child.named_children())
    ]


def _read_iterable(path: str, container: Any) -> ObservedLayout | None:
    experts = find_experts(container)
    is_plain = not path and type(container).__name__ in _PLAIN
    if not experts or (is_plain and not all(map(_is_mlp, experts))):
        return None
    linears = {name: size for name, c in experts[0].named_children() if (size := _find_size(c))}
    if not linears:
        return None
    sizes = list(linears.values())
    packed = len(sizes) == 2 and sizes[0][0] == 2 * sizes[1][1]
    return ObservedLayout(
        kind="iterable",
        has_bias=any(_has_bias(getattr(experts[0], name)) for name in linears),
        has_gate=len(linears) == 3 or packed,
        path=path,
        names=tuple(linears),
        num_experts=len(experts),
    )


def _read_fused(path: str, container: Any) -> ObservedLayout | None:
    held: dict[str, Any] = dict(container.named_parameters(recurse=False))
    held |= {name: c.weight for name, c in container.named_children() if _dims(c) == 3}
    stacked = {name: tuple(p.shape) for name, p in held.items() if len(p.shape) == 3}
    for names in _FUSED_NAMES:
        if stacked.keys() >= set(names):
            flags: Any = _read_flags(container, [stacked[name] for name in names])
            flags["has_bias"] = flags.get("has_bias", any(f"{name}_bias" in held for name in names))
            break
    else:
        # Under another name they are experts where the container is called so; that is all we say.
        if path != "experts" or len(stacked) < 2 or len({s[0] for s in stacked.values()}) > 1:
            return None
        names = tuple(stacked)
        flags = _read_flags(container, list(stacked.values()))
        flags["is_transposed"] = _read_own_flags(container).get("is_transposed")
    count = stacked[names[-1]][0]
    return ObservedLayout(kind="fused", path=path, names=names, num_experts=count, **flags)


def _read_flags(container: Any, shapes: list[tuple[int, ...]]) -> dict[str, bool | None]:
    """Flags of a fused container: those that it carries, else what the shapes say.

    shapes: with a gate, first is [E, 2I, H] or [E, H, 2I] (or two of [E, I, H] or [E, H, I]);
    without, [E, I, H] or [E, H, I]. down: the other way round, so that one side of each matches
    the hidden size and the other tells the gate. Neither side of packed weights matches.
    """
    first, down = shapes[0], shapes[-1]
    straight = first[2] == down[1]
    transposed = first[1] == down[2]
    unpacked = straight or transposed
    width, rows = (down[1], first[2]) if transposed and not straight else (down[2], first[1])
    gated = len(shapes) == 3 or not unpacked or rows == 2 * width
    read: dict[str, bool | None] = {
        "is_transposed": transposed if straight != transposed else None,
        "has_gate": gated,
        **_read_own_flags(container),
    }
    if not read["has_gate"] or len(shapes) == 3:
        read["is_concatenated"] = None
    return read


def _read_own_flags(container: Any) -> dict[str, bool | None]:
    found = {name: getattr(container, name, None) for name in _FLAGS}
    return {name: value for name, value in found.items() if isinstance(value, bool)}


def _read_flat(path: str, container: Any) -> ObservedLayout | None:
    """Read DBRX's container: `mlp` with three flat parameters, or with a list for each."""
    for name, mlp in (("mlp", getattr(container, "mlp", None)), ("", container)):
        if mlp is None or not hasattr(mlp, "named_parameters"):
            continue
        held = dict(mlp.named_parameters(recurse=False))
        where = ".".join(part for part in (path, name) if part)
        if sorted(held) == sorted(_FLAT_NAMES):
            count: Any = getattr(mlp, "moe_num_experts", 0) or getattr(container, "num_experts", 0)
            return ObservedLayout(
                kind="flat", path=where, names=_FLAT_NAMES, num_experts=int(count)
            )
        lists = {name: child for name, child in mlp.named_children() if _is_list(child)}
        if name and len(lists) >= 2 and len({len(child) for child in lists.values()}) == 1:
            return ObservedLayout(
                kind="by_projection",
                has_bias=any(_has_bias(linear) for child in lists.values() for linear in child),
                has_gate=len(lists) == 3,
                path=where,
                names=tuple(lists),
                num_experts=len(next(iter(lists.values()))),
            )
    return None


def _dims(module: Any) -> int:
    """How many dimensions a module's weight has; 0 where it has none."""
    return len(getattr(getattr(module, "weight", None), "shape", ()))


def _find_size(module: Any) -> tuple[int, int] | None:
    """(outputs, inputs) of a linear, also of one whose weight is packed; None of anything else."""
    outputs, inputs = (getattr(module, name, None) for name in ("out_features", "in_features"))
    if isinstance(outputs, int) and isinstance(inputs, int):
        return outputs, inputs
    return tuple(module.weight.shape) if _dims(module) == 2 else None


def _is_mlp(module: Any) -> bool:
    """Whether two or three linears, of which one takes what the first gives, are all it holds."""
    sizes = [
        _find_size(child)
        for _, child in module.named_children()
        if any(True for _ in child.named_parameters()) or _find_size(child) is not None
    ]
    known = [size for size in sizes if size is not None]
    if len(known) != len(sizes) or len(known) not in (2, 3):
        return False
    rows, columns = known[0]
    return any(size[0] == columns and rows in (size[1], 2 * size[1]) for size in known[1:])


def _has_bias(linear: Any) -> bool:
    return getattr(linear, "bias", None) is not None


def _is_list(module: Any) -> bool:
    names = [name for name, _ in module.named_children()]
    return bool(names) and all(name.isdigit() for name in names)
