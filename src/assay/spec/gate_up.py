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
from assay.spec.packed_amax import PackedAmax, find_packing

__all__ = ["WeightQuantizer", "sync_moe_gate_up_amax"]

Pair = tuple[str, str]


class WeightQuantizer(Protocol):
    """What this module asks of a quantizer."""

    amax: Any


def sync_moe_gate_up_amax(model: Any, model_type: str | None = None) -> int:
    """Give gate and up of every expert the elementwise maximum of their weight amax.

    model: any module tree with `named_modules`. model_type: None to read it from the configs, as
    find_model_type does. A spec whose gate_up_pair is None is left alone; where no spec knows the
    block, every declared pair is tried. Shared experts and dense MLPs are left alone. Where no
    quantizer of a pair has an amax there is nothing to do; one on the meta device, one without
    its partner, and one of which nobody knows where the gate's rows are, stay as they are, with a
    warning. Returns how many pairs (or fused parameters) were given their maximum.
    """
    root = getattr(model, "config", None)
    changed = 0
    done: set[int] = set()
    for path, module in model.named_modules():
        name = find_model_type(root, module) if model_type is None else model_type
        if not is_moe(module, name):
            continue
        pairs = _find_pairs(module, name)
        for pair in pairs:
            for where, gate, up in _find_quantizers(module, pair):
                if gate is not None and up is not None and id(gate) not in done:
                    done.add(id(gate))
                    changed += _sync(gate, up, f"{path}: {where}", pair)
        for quantizer in _find_packed(module) if pairs else ():
            if id(quantizer) not in done:
                done.add(id(quantizer))
                changed += _sync_packed(quantizer, module, name, path)
    return changed


def _find_pairs(module: Any, model_type: str | None) -> Sequence[Pair]:
    spec = match_moe_block(module, model_type)
    if spec is None:
        return list_all_possible("gate_up_pair")
    assert spec.moe_spec is not None
    pair = spec.moe_spec.gate_up_pair
    return () if pair is None else (pair,)


def _find_quantizers(module: Any, pair: Pair) -> Iterator[tuple[str, Any, Any]]:
    """Yield where, and (gate's, up's) quantizer, for every expert of a block that has both."""
    for number, expert in enumerate(find_experts(module)):
        gate, up = (getattr(expert, name, None) for name in pair)
        if gate is not None and up is not None:
            first, second = (getattr(linear, "weight_quantizer", None) for linear in (gate, up))
            yield f"expert {number}", first, second
    experts = getattr(module, "experts", module)
    for container in (experts, getattr(experts, "mlp", None)):
        if container is None:
            continue
        gates, ups = (_of_container(container, name) for name in pair)
        if gates and ups and len(gates) != len(ups):
            _warn(f"{pair[0]} and {pair[1]} have {len(gates)} and {len(ups)} quantizers")
            continue
        for number, (gate, up) in enumerate(zip(gates, ups, strict=False)):
            yield f"expert {number}" if len(gates) > 1 else "all experts", gate, up


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
    if observed is None or observed.kind != "fused" or len(observed.names) != 2:
        return []
    if not observed.has_gate:
        return []
    container = getattr(module, observed.path) if observed.path else module
    return [q for q in _of_container(container, observed.names[0]) if q is not None]


def _sync_packed(quantizer: Any, module: Any, model_type: str | None, path: str) -> int:
    """Give the gate's and the up's part of one amax their maximum."""
    amax = getattr(quantizer, "amax", None)
    if amax is None:
        return 0
    packing = find_packing(module, match_moe_block(module, model_type))
    packed = PackedAmax(amax, packing)
    if packed.is_shared:
        return 0
    problem = "is on the meta device" if _is_meta(amax) else packed.problem
    if problem:
        _warn(f"{path}: the amax of {packing.name} {problem}, and stays as it is")
        return 0
    quantizer.amax = packed.give_maximum()
    return 1


def _sync(gate: Any, up: Any, where: str, pair: Pair) -> int:
    first, second = getattr(gate, "amax", None), getattr(up, "amax", None)
    if first is None and second is None:
        return 0
    problem = ""
    if first is None or second is None:
        lacking, has = pair if first is None else pair[::-1]
        problem = f"{lacking} has no amax, {has} has one"
    elif _is_meta(first) or _is_meta(second):
        problem = f"the amax of {pair[0]} and {pair[1]} is on the meta device"
    elif tuple(first.shape) != tuple(second.shape):
        shapes = f"{tuple(first.shape)} and {tuple(second.shape)}"
        problem = f"the amax of {pair[0]} and {pair[1]} has the shapes {shapes}"
    if problem:
        _warn(f"{where}: {problem}, and stays as it is")
        return 0
    assert first is not None and second is not None
    largest = first.maximum(second.to(first.device))
    gate.amax = largest
    up.amax = largest.clone().to(second.device)
    return 1


def _is_meta(tensor: Any) -> bool:
    return getattr(getattr(tensor, "device", None), "type", "") == "meta"


def _warn(text: str) -> None:
    """Warn as if from the line that called sync_moe_gate_up_amax."""
    warnings.warn(text, stacklevel=4)
