"""The shapes that expert tensors must have, by the config. Nothing here imports torch.

E experts, H channels that experts read and write, I channels between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from assay.errors import WeightError
from assay.spec.config import ModelConfig
from assay.spec.experts import Experts
from assay.spec.moe import ExpertFiles, MoESpec
from assay.spec.resolve import Context

__all__ = ["check_shapes", "read_sizes"]

Shape = tuple[int, ...]
_HIDDEN = ("hidden_size", "d_model", "n_embd", "moe_hidden_size")
_MXFP4_GROUP = 32  # values with one scale; 16 bytes


def read_sizes(moe: MoESpec, config: ModelConfig, layers: Iterable[int]) -> dict[int, Experts]:
    """What the config says of each layer's experts: their count, null ones, and widths."""
    sizes_only = replace(moe.experts, activation="")  # which has shapes to say nothing of
    return {layer: Context(config, layer).resolve(sizes_only) for layer in layers}


def check_shapes(
    files: ExpertFiles,
    config: ModelConfig,
    sizes: Mapping[int, Experts],
    groups: Iterable[Any],
    tensors: Mapping[str, Shape],
) -> None:
    """Hold weights, biases and MXFP4 blocks against the config.

    sizes: of read_sizes. groups: ExpertGroups. Other quantized parts have shapes of their tool's
    own and aren't checked. Raises WeightError for a shape that isn't the config's.
    """
    for group in groups:
        experts = sizes[group.layer]
        hidden = experts.latent.width if experts.latent is not None else _find_hidden(config)
        for part, name in group.tensors.items():
            _check(files, experts, hidden, group, part, name, tensors[name], config.where)


def _check(
    files: ExpertFiles,
    experts: Experts,
    hidden: int,
    group: Any,
    part: str,
    name: str,
    shape: Shape,
    where: str,
) -> None:
    expected = _expect(files, experts, hidden, group.projection, part)
    if expected and shape not in expected:
        raise WeightError(
            where,
            f"{name} has the shape {list(shape)}",
            expected=" or ".join(str(list(one)) for one in expected),
            next_step="The checkpoint or its config.json is another model's, or was changed.",
        )


def _expect(
    files: ExpertFiles, experts: Experts, hidden: int, projection: str, part: str
) -> list[Shape]:
    """Shapes that a tensor may have; none where its tool decides."""
    rows = {"gate_up": 2 * experts.width, "down": hidden}.get(projection, experts.width)
    inputs = experts.width if projection == "down" else hidden
    kind, turned = files.layout.kind, bool(files.layout.is_transposed)
    # Null experts may have rows of their own.
    counts = dict.fromkeys((experts.count, experts.count + experts.null_count))
    if part == "weight":
        if kind == "flat":
            return [(experts.count * experts.width, hidden)]
        matrix = (inputs, rows) if turned else (rows, inputs)
        return [matrix] if kind == "iterable" else [(count, *matrix) for count in counts]
    if part == "bias":
        return [(rows,)] if kind == "iterable" else [(count, rows) for count in counts]
    if part == "blocks" and kind == "fused":  # always [out, in], in groups of bytes
        groups = inputs // _MXFP4_GROUP
        return [(count, rows, groups, _MXFP4_GROUP // 2) for count in counts]
    if part == "scales" and kind == "fused":
        return [(count, rows, inputs // _MXFP4_GROUP) for count in counts]
    return []


def _find_hidden(config: ModelConfig) -> int:
    for name in _HIDDEN:
        if config.get(name, None) is not None:
            return config.get_size(name)
    return config.get_size(_HIDDEN[0])
