"""What a user may ask of an export, checked before any work."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from assay.blocks.precision import FloatFormat, PrecisionPlan, WeightFormat
from assay.errors import OptionError
from assay.quantization import Grid

__all__ = ["EXECUTION_PROVIDERS", "PRECISIONS", "ExportOptions"]

PRECISIONS = ("fp32", "fp16", "bf16", "int8", "int4")
EXECUTION_PROVIDERS = ("cpu",)
_FLOATS = {"fp32": ir.DataType.FLOAT, "fp16": ir.DataType.FLOAT16}
_BITS = {"int4": 4, "int8": 8}
_ATTENTION_FORMS = ("gqa", "decomposed")
_ACCURACY_LEVELS = (0, 1, 4)


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """The choices of one export.

    precision: of the projections; activations are float32, or float16 with fp16.
    group_size: inputs that share a scale (int4, int8). symmetric: signed scales without zero
    points, else scale and zero point. head: format of the head, and of the embedding where the
    two are tied ("" takes the precision's own default). keep: "PATTERN=FORMAT" over module
    paths. accuracy_level: of MatMulNBits; 4 computes with int8 activations, 0 in float32.
    attention: `gqa`, or `decomposed` for plain ONNX operators. all_logits: logits of every
    position. context_length: longest sequence (0 takes the model's own).
    """

    precision: str = "fp32"
    execution_provider: str = "cpu"
    group_size: int = 32
    symmetric: bool = True
    head: str = ""
    keep: tuple[str, ...] = ()
    accuracy_level: int = 4
    attention: str = "gqa"
    all_logits: bool = False
    context_length: int = 0
    ignore_config_keys: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_choice("-p", self.precision, PRECISIONS)
        _check_choice("-e", self.execution_provider, EXECUTION_PROVIDERS)
        _check_choice("--attention", self.attention, _ATTENTION_FORMS)
        _check_choice("--accuracy-level", self.accuracy_level, _ACCURACY_LEVELS)
        if self.precision == "bf16":
            raise OptionError(
                "-p bf16 -e cpu",
                "ONNX Runtime's CPU provider has no bf16 kernels for MatMul",
                next_step="Use fp32 or fp16; a bf16 checkpoint is widened without loss by fp32.",
            )
        if self.context_length < 0:
            raise OptionError(
                "--context-length",
                f"it is {self.context_length}",
                expected="a number of tokens, or 0 for the model's own",
            )

    def plan_precision(self) -> PrecisionPlan:
        """Return the formats of all weights; OptionError for one that is impossible."""
        default = self._parse_format("-p", self.precision)
        head = self._parse_format("--head", self.head or self._default_head())
        keep = []
        for item in self.keep:
            match = re.fullmatch(r"(.+)=([a-z0-9]+)", item)
            if not match:
                raise OptionError(
                    f"--keep {item}",
                    "it isn't PATTERN=FORMAT",
                    expected="for example --keep '*.down_proj=int8'",
                )
            keep.append((match[1], self._parse_format(f"--keep {item}", match[2])))
        float_dtype = _FLOATS.get(self.precision, ir.DataType.FLOAT)
        # Eight bits cost an embedding nothing that shows; four would.
        embedding = "int8" if self.precision in _BITS else self.precision
        return PrecisionPlan(
            float_dtype=float_dtype,
            default=default,
            head=head,
            embedding=self._parse_format("-p", embedding),
            keep=tuple(keep),
            accuracy_level=self.accuracy_level,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the options as plain data, for the manifest."""
        return {
            **self.__dict__,
            "keep": list(self.keep),
            "ignore_config_keys": list(self.ignore_config_keys),
        }

    def _default_head(self) -> str:
        """int4's head is int8: it is the layer that rounding hurts most."""
        return "int8" if self.precision == "int4" else self.precision

    def _parse_format(self, where: str, name: str) -> WeightFormat:
        if name in _BITS:
            return Grid(bits=_BITS[name], group_size=self.group_size, symmetric=self.symmetric)
        if name not in _FLOATS:
            raise OptionError(
                where,
                f"the format {name!r} is unknown here",
                expected=f"one of {', '.join((*_FLOATS, *_BITS))}",
            )
        return FloatFormat(_FLOATS[name])


def _check_choice(where: str, value: object, choices: tuple[object, ...]) -> None:
    if value not in choices:
        raise OptionError(
            where,
            f"{value!r} is not possible",
            expected=f"one of {', '.join(str(choice) for choice in choices)}",
        )
