"""The tensors that stand for one projection in a file: the weight, and what quantizing adds to it.

Names of formats: compressed-tensors, modelopt, GPTQ and AWQ, bitsandbytes, MXFP4 and FP8 as
transformers writes them. Nothing here imports torch.

O rows and I inputs of a projection; a stack of E experts has E in front of every shape.
"""

from __future__ import annotations

from collections.abc import Collection

__all__ = [
    "FUSED_ENDINGS",
    "MODULE_ENDINGS",
    "PACKED_DTYPES",
    "WEIGHTS",
    "find_companions",
    "list_weight_shapes",
]

Shape = tuple[int, ...]
_BITS = (2, 3, 4, 8)
_WORD = 32  # bits of the integers into which GPTQ, AWQ and compressed-tensors pack
_MXFP4_GROUP = 32  # values with one scale; 16 bytes

_GPTQ = ("qweight", "qzeros", "scales", "g_idx")
_SCALES = ("weight_scale", "weight_scale_2", "weight_scale_inv", "weight_global_scale")
_ACTIVATIONS = ("input_scale", "input_global_scale", "activation_scale", "pre_quant_scale")
_COMPRESSED = ("weight_packed", "weight_zero_point", "weight_g_idx", "weight_shape")
_BITSANDBYTES = (
    *("weight.absmax", "weight.quant_map", "weight.nested_absmax", "weight.nested_quant_map"),
    *("weight.quant_state.bitsandbytes__nf4", "weight.quant_state.bitsandbytes__fp4"),
    *("SCB", "weight_format"),
)
_MODULE_PARTS = (
    *("weight", "bias", "scale"),
    *(*_GPTQ, *_SCALES, *_ACTIVATIONS, *_COMPRESSED, *_BITSANDBYTES),
)
# What may stand behind the name of a module, and behind that of a parameter.
MODULE_ENDINGS = tuple(f".{part}" for part in _MODULE_PARTS)
FUSED_ENDINGS = (
    "",
    *("_bias", "_blocks", "_scales", "_scale", "_scale_inv", "_scale_2", "_packed", "_shape"),
    *("_zero_point", "_global_scale"),
    *(f"_{part}" for part in (*_SCALES, *_ACTIVATIONS)),
    *MODULE_ENDINGS,
)

# The parts that hold the weight's values, and those without which they can't be read.
WEIGHTS = ("weight", "qweight", "weight_packed", "blocks", "packed")
_COMPANIONS = {
    "qweight": ("scales",),
    "weight_packed": ("weight_scale",),
    "blocks": ("scales",),
    "packed": ("scale",),
}
PACKED_DTYPES = frozenset({"U8", "I8", "I16", "I32", "I64", "U16", "U32", "U64"})
_BYTES = frozenset({"U8", "I8"})


def find_companions(weight: str) -> tuple[str, ...]:
    """The parts that a weight needs beside it."""
    return _COMPANIONS.get(weight, ())


def list_weight_shapes(
    weight: str, dtype: str, beside: Collection[str], out: int, inputs: int, *, turned: bool
) -> set[Shape]:
    """The shapes that one expert's weight may have.

    weight: one of WEIGHTS. dtype: as stored. beside: the parts that stand with it. turned: stored
    as [in, out]; MXFP4 blocks never are. Bytes that have a scale beside them hold one value, or
    two of four bits, next to each other along either side.
    """
    if weight == "blocks":
        return {(out, inputs // _MXFP4_GROUP, _MXFP4_GROUP // 2)}
    first, second = (inputs, out) if turned else (out, inputs)
    if weight == "weight":
        shapes: set[Shape] = {(first, second)}
        if dtype in _BYTES and any(part.startswith(("weight_scale", "scale")) for part in beside):
            shapes |= set(_halve(first, second))
        if dtype == "U8" and "weight.absmax" in beside:
            shapes = {(first * second // 2, 1)}
        return shapes
    if weight == "qweight":  # GPTQ packs inputs, AWQ outputs
        sizes = [(_pack(inputs, bits), _pack(out, bits)) for bits in _BITS]
        return {shape for i, o in sizes for shape in ((i, out), (inputs, o))}
    if dtype in _BYTES:
        return {(first, -(-second // 2))}
    return {(first, _pack(second, bits)) for bits in _BITS}


def _halve(first: int, second: int) -> list[Shape]:
    halves: list[Shape] = [(first, second // 2)] if second % 2 == 0 else []
    return halves if first % 2 else [*halves, (first // 2, second)]


def _pack(count: int, bits: int) -> int:
    """Words for so many values."""
    return -(-count * bits // _WORD)
