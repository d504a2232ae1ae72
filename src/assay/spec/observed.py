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
# (gate and up, down): what containers of fused experts are called in transformers 4 and 5.
_FUSED_NAMES = (
    ("gate_up_proj", "down_proj"),
    ("up_proj", "down_proj"),
    ("fc1", "fc2"),
    ("input_linear", "output_linear"),
)
_FLAT_NAMES = ("w1", "v1", "w2")


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
    shapes can't tell is None.
    """
    experts = getattr(module, "experts", None)
    for path, container in (("experts", experts), ("", module)):
        if container is None or not hasattr(container, "named_children"):
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
    container = getattr(module, "experts", module)
    return [
        child
        for name, child in container.named_children()
        if _NUMBERED.fullmatch(name) and any(True for _ in child.named_children())
    ]


def _read_iterable(path: str, container: Any) -> ObservedLayout | None:
    experts = find_experts(container)
    if not experts:
        return None
    linears = {name: child for name, child in experts[0].named_children() if _dims(child) == 2}
    if not linears:
        return None
    return ObservedLayout(
        kind="iterable",
        has_bias=any(getattr(child, "bias", None) is not None for child in linears.values()),
        has_gate=len(linears) == 3,
        path=path,
        names=tuple(linears),
        num_experts=len(experts),
    )


def _read_fused(path: str, container: Any) -> ObservedLayout | None:
    held: dict[str, Any] = dict(container.named_parameters(recurse=False))
    held |= {name: c.weight for name, c in container.named_children() if _dims(c) == 3}
    for first, down in _FUSED_NAMES:
        if first in held and down in held:
            if len(held[first].shape) != 3 or len(held[down].shape) != 3:
                continue
            flags: Any = _read_flags(container, held[first].shape, held[down].shape, set(held))
            count = int(held[down].shape[0])
            return ObservedLayout(
                kind="fused", path=path, names=(first, down), num_experts=count, **flags
            )
    return None


def _read_flags(container: Any, first: Any, down: Any, held: set[str]) -> dict[str, bool | None]:
    """Flags of a fused container: those that it carries, else what shapes and names say.

    first: [E, 2I, H] or [E, H, 2I] with a gate, [E, I, H] or [E, H, I] without. down: the other
    way round, so that one side of each matches the hidden size and the other tells the gate.
    """
    straight = first[2] == down[1]
    transposed = first[1] == down[2]
    width = down[2] if straight else down[1]
    gated = (first[1] if straight else first[2]) == 2 * width
    read: dict[str, bool | None] = {
        "is_transposed": None if straight and transposed else bool(transposed),
        "is_concatenated": None,
        "has_bias": any(name.endswith("_bias") for name in held),
        "has_gate": bool(gated),
    }
    for name in _FLAGS:
        if isinstance(getattr(container, name, None), bool):
            read[name] = getattr(container, name)
    if not read["has_gate"]:
        read["is_concatenated"] = None
    return read


def _read_flat(path: str, container: Any) -> ObservedLayout | None:
    """Read DBRX's container: `mlp` with three flat parameters, or with a list for each."""
    mlp = getattr(container, "mlp", None)
    if mlp is None or not hasattr(mlp, "named_parameters"):
        return None
    held = dict(mlp.named_parameters(recurse=False))
    lists = {name: child for name, child in mlp.named_children() if _is_list(child)}
    where = f"{path}.mlp".strip(".")
    if tuple(sorted(held)) == tuple(sorted(_FLAT_NAMES)):
        count: Any = getattr(mlp, "moe_num_experts", 0) or getattr(container, "num_experts", 0)
        return ObservedLayout(kind="flat", path=where, names=_FLAT_NAMES, num_experts=int(count))
    if len(lists) >= 2 and len({len(child) for child in lists.values()}) == 1:
        count = len(next(iter(lists.values())))
        return ObservedLayout(
            kind="by_projection",
            has_gate=len(lists) == 3,
            path=where,
            names=tuple(lists),
            num_experts=count,
        )
    return None


def _dims(module: Any) -> int:
    """How many dimensions a module's weight has; 0 where it has none."""
    shape = getattr(getattr(module, "weight", None), "shape", ())
    return len(shape)


def _is_list(module: Any) -> bool:
    names = [name for name, _ in module.named_children()]
    return bool(names) and all(name.isdigit() for name in names)
