"""The shapes and dtypes that expert tensors must have, by the config. Nothing here imports torch.

E experts, H channels that experts read and write, I channels between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from assay.errors import WeightError
from assay.spec.config import ModelConfig
from assay.spec.expert_forms import ExpertGroup, Tensors
from assay.spec.expert_parts import PACKED_DTYPES, WEIGHTS, list_weight_shapes
from assay.spec.experts import Experts
from assay.spec.moe import ExpertFiles
from assay.spec.resolve import Context

__all__ = ["check_shapes", "read_sizes"]

Shape = tuple[int, ...]
_HIDDEN = ("hidden_size", "d_model", "n_embd", "moe_hidden_size")
_MXFP4_GROUP = 32


def read_sizes(
    experts: Experts, config: ModelConfig, layers: Mapping[int, int]
) -> dict[int, Experts]:
    """What the config says of each layer's experts: their count, null ones, and widths.

    layers: layer in the file -> the decoder's layer whose facts hold for it. ConfigError where a
    size is no whole number.
    """
    sizes_only = replace(experts, activation="")  # which has shapes to say nothing of
    return {layer: Context(config, same).resolve(sizes_only) for layer, same in layers.items()}


def check_shapes(
    files: ExpertFiles,
    config: ModelConfig,
    sizes: Mapping[int, Experts],
    groups: Iterable[ExpertGroup],
    tensors: Tensors,
) -> None:
    """Hold weights, biases and MXFP4 scales against the config, and packed weights' dtypes.

    sizes: of read_sizes. Other quantized parts have shapes of their tool's own: where experts are
    stacked, they hold one value or begin with the number of experts. Raises WeightError.
    """
    for group in groups:
        experts = sizes[group.layer]
        hidden = experts.latent.width if experts.latent is not None else _find_hidden(config)
        for part, name in group.tensors.items():
            dtype, shape = tensors[name]
            if part in WEIGHTS and part != "weight" and dtype not in PACKED_DTYPES:
                raise WeightError(
                    config.where,
                    f"{name} is {dtype}",
                    expected="integers, into which several values are packed",
                    next_step="The checkpoint was changed; quantize it again.",
                )
            expected = _expect(files, experts, hidden, group, part, dtype)
            if expected is None:
                _check_stacked(files, experts, name, shape, config.where)
            elif shape not in expected:
                shown = " or ".join(str(list(one)) for one in sorted(expected))
                raise WeightError(
                    config.where,
                    f"{name} ({dtype}) has the shape {list(shape)}",
                    expected=shown,
                    next_step="The checkpoint or its config.json is another model's, or was "
                    "changed.",
                )


def _expect(
    files: ExpertFiles, experts: Experts, hidden: int, group: ExpertGroup, part: str, dtype: str
) -> set[Shape] | None:
    """Shapes that a tensor may have; None where its tool decides."""
    out = {"gate_up": 2 * experts.width, "down": hidden}.get(group.projection, experts.width)
    inputs = experts.width if group.projection == "down" else hidden
    if files.layout.kind == "flat":
        flat = (experts.count * experts.width, hidden)
        return {flat} if part == "weight" else None
    if part in WEIGHTS:
        turned = bool(files.layout.is_transposed)
        one = list_weight_shapes(part, dtype, group.tensors, out, inputs, turned=turned)
    elif part == "bias":
        one = {(out,)}
    elif part == "scales" and "blocks" in group.tensors:
        one = {(out, inputs // _MXFP4_GROUP)}
    elif part in ("g_idx", "weight_g_idx"):
        one = {(inputs,)}
    else:
        return None
    if group.expert is not None:
        return one
    return {(count, *shape) for shape in one for count in _list_counts(experts)}


def _list_counts(experts: Experts) -> tuple[int, ...]:
    """How many experts a stack holds: null ones may have weights that nobody reads."""
    return experts.count, experts.count + experts.null_count


def _check_stacked(
    files: ExpertFiles, experts: Experts, name: str, shape: Shape, where: str
) -> None:
    if files.layout.kind != "fused" or len(shape) < 2:
        return
    if shape[0] not in _list_counts(experts):
        raise WeightError(
            where,
            f"{name} has the shape {list(shape)}",
            expected=f"{experts.count} experts first, or one value",
            next_step="The checkpoint or its config.json is another model's, or was changed.",
        )


def _find_hidden(config: ModelConfig) -> int:
    for name in _HIDDEN:
        if config.get(name, None) is not None:
            return config.get_size(name)
    return config.get_size(_HIDDEN[0])
