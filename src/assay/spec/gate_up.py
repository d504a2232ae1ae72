"""One weight range for the gate and up of each expert, before weights are quantized.

Engines that fuse gate and up read one global scale for both, so both quantizers take the
elementwise maximum of the two. Written against a small protocol: a quantizer is anything with an
`amax` tensor, found as `weight_quantizer` of a linear, or, in a fused container, as
`{name}_weight_quantizer` (one for the parameter) or `{name}_weight_quantizers` (one an expert).
Nothing here imports torch.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from assay.spec.matching import find_model_type, is_moe, list_all_possible, match_moe_block
from assay.spec.observed import find_experts, observed_expert_layout

__all__ = ["WeightQuantizer", "sync_moe_gate_up_amax"]

Pair = tuple[str, str]


class WeightQuantizer(Protocol):
    """What this module asks of a quantizer."""

    amax: Any


def sync_moe_gate_up_amax(model: Any, model_type: str | None = None) -> int:
    """Give gate and up of every expert the elementwise maximum of their weight amax.

    model: any module tree with `named_modules`. model_type: None to read it from the model's
    config. A spec whose gate_up_pair is None is left alone; where no spec knows the block, every
    declared pair is tried. Quantizers without an amax are left alone, those on the meta device
    with a warning. Returns how many pairs were changed.
    """
    if model_type is None:
        model_type = find_model_type(getattr(model, "config", None))
    changed = 0
    done: set[int] = set()
    for path, module in model.named_modules():
        if not is_moe(module, model_type):
            continue
        pairs = _find_pairs(module, model_type)
        for pair in pairs:
            for gate, up in _find_quantizers(module, pair):
                if id(gate) not in done:
                    done.add(id(gate))
                    changed += _sync(gate, up, f"{path}: {pair[0]} and {pair[1]}")
        for quantizer in _find_packed(module) if pairs else ():
            if id(quantizer) not in done:
                done.add(id(quantizer))
                changed += _sync_packed(quantizer, module, path)
    return changed


def _find_pairs(module: Any, model_type: str | None) -> Sequence[Pair]:
    spec = match_moe_block(module, model_type)
    if spec is None:
        return list_all_possible("gate_up_pair")
    assert spec.moe_spec is not None
    pair = spec.moe_spec.gate_up_pair
    return () if pair is None else (pair,)


def _find_quantizers(module: Any, pair: Pair) -> Iterator[tuple[Any, Any]]:
    """Yield (gate's, up's) quantizer for every expert of a block that has both."""
    experts = getattr(module, "experts", module)
    for expert in find_experts(module):
        gate, up = (getattr(expert, name, None) for name in pair)
        if gate is not None and up is not None:
            yield (
                getattr(gate, "weight_quantizer", None),
                getattr(up, "weight_quantizer", None),
            )
    for container in (experts, getattr(experts, "mlp", None)):
        if container is None:
            continue
        gates, ups = (_of_container(container, name) for name in pair)
        yield from zip(gates, ups, strict=True) if len(gates) == len(ups) else ()


def _of_container(container: Any, name: str) -> list[Any]:
    """The quantizers of one projection of a container: of its linears, or of its parameter."""
    linears: Any = getattr(container, name, None)
    if hasattr(linears, "named_children") and not hasattr(linears, "weight_quantizer"):
        return [getattr(child, "weight_quantizer", None) for _, child in linears.named_children()]
    if hasattr(linears, "weight_quantizer"):
        return [linears.weight_quantizer]
    one = getattr(container, f"{name}_weight_quantizer", None)
    many = getattr(container, f"{name}_weight_quantizers", None)
    return list(many) if many is not None else [one] if one is not None else []


def _find_packed(module: Any) -> list[Any]:
    """The quantizers of a parameter that holds gate and up together."""
    observed = observed_expert_layout(module)
    if observed is None or observed.kind != "fused" or observed.is_concatenated is None:
        return []
    container = getattr(module, observed.path) if observed.path else module
    return [q for q in _of_container(container, observed.names[0]) if q is not None]


def _sync_packed(quantizer: Any, module: Any, path: str) -> int:
    """Give the gate's and the up's part of one amax their maximum; one number is shared already."""
    amax = getattr(quantizer, "amax", None)
    if amax is None or _count(amax) == 1:
        return 0
    if _is_meta(amax):
        _warn(f"{path}: amax is on the meta device and stays as it is")
        return 0
    observed = observed_expert_layout(module)
    assert observed is not None
    container = getattr(module, observed.path) if observed.path else module
    held = getattr(container, observed.names[0])
    rows = getattr(held, "weight", held).shape[2 if observed.is_transposed else 1]
    axes = [axis for axis, size in enumerate(amax.shape) if size == rows]
    if len(axes) != 1:
        _warn(f"{path}: amax {tuple(amax.shape)} doesn't show {rows} rows, and stays as it is")
        return 0
    half = rows // 2
    parts = (
        (slice(0, half), slice(half, rows))
        if observed.is_concatenated
        else (slice(0, rows, 2), slice(1, rows, 2))
    )
    gate, up = ((slice(None),) * axes[0] + (part,) for part in parts)
    largest = amax[gate].maximum(amax[up])
    changed = amax.clone()
    changed[gate] = largest
    changed[up] = largest
    quantizer.amax = changed
    return 1


def _sync(gate: Any, up: Any, where: str) -> int:
    first, second = getattr(gate, "amax", None), getattr(up, "amax", None)
    if first is None or second is None:
        return 0
    if _is_meta(first) or _is_meta(second):
        _warn(f"{where}: amax is on the meta device and stays as it is")
        return 0
    if tuple(first.shape) != tuple(second.shape):
        _warn(
            f"{where}: amax has the shapes {tuple(first.shape)} and {tuple(second.shape)}, "
            "and stays as it is"
        )
        return 0
    largest = first.maximum(second.to(first.device))
    gate.amax = largest
    up.amax = largest.clone().to(second.device)
    return 1


def _is_meta(tensor: Any) -> bool:
    return getattr(getattr(tensor, "device", None), "type", "") == "meta"


def _count(tensor: Any) -> int:
    count = 1
    for size in tensor.shape:
        count *= int(size)
    return count


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=4)
