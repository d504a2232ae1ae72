"""The residual stream after each decoder layer, candidate against reference.

Values of the graph are told by what they hold, not by their names: with the same ids fed, the
value that lies nearest to the reference's stream after a layer is that layer's. So this works for
any tool's graph, and a fault shows as the layer from which nothing near is found.
Shapes: S tokens, H hidden size.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from assay.errors import RuntimeFolderError
from assay.verification.candidate import Candidate
from assay.verification.reference import ids_on_device
from assay.verification.verdict import Check

if TYPE_CHECKING:
    import onnx
    import torch

__all__ = ["LayerAgreement", "compare_layers", "match_layers", "report_layers", "run_layers"]

Stream = npt.NDArray[np.float32]
_NUM_TOKENS = 48
_MAX_BYTES = 1 << 30


@dataclass(frozen=True)
class LayerAgreement:
    """One layer. name: Hugging Face's module path. value: the graph's value that fits best."""

    name: str
    value: str
    rel_l2: float
    corr: float


def run_layers(model: torch.nn.Module, ids_S: npt.NDArray[np.int64]) -> dict[str, Stream]:
    """The reference's stream [S, H] after each decoder layer, by module path."""
    import torch

    streams: dict[str, Stream] = {}
    hooks = []
    for name, layer in _find_layers(model):

        def keep(_: Any, __: Any, output: Any, name: str = name) -> None:
            value = output[0] if isinstance(output, tuple) else output
            streams[name] = value.detach().float().cpu().reshape(-1, value.shape[-1]).numpy().copy()

        hooks.append(layer.register_forward_hook(keep))
    try:
        with torch.no_grad():
            model(input_ids=ids_on_device(model, ids_S[:_NUM_TOKENS]), use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    return streams


def _find_layers(model: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    import torch

    count = model.config.get_text_config().num_hidden_layers  # type: ignore[union-attr,operator]
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == count:
            return [(f"{name}.{index}", layer) for index, layer in enumerate(module)]
    return []


def match_layers(
    candidate: Candidate, ids_S: npt.NDArray[np.int64], streams: dict[str, Stream]
) -> list[LayerAgreement]:
    """Find each layer's stream among the graph's values, in the graph's own order.

    Empty where the graph gives no values of that width.
    """
    if not streams:
        return []
    width = next(iter(streams.values())).shape[1]
    names = _list_streams(candidate.folder.proto, width)
    most = _MAX_BYTES // (4 * width * _NUM_TOKENS)
    if not names or len(names) > most:
        return []
    try:
        values = candidate.run_values(ids_S[:_NUM_TOKENS], names)
    except RuntimeFolderError:
        return []
    found, start = [], 0
    for layer, stream in streams.items():
        scores = [_relative(values[name], stream) for name in names[start:]]
        if not scores:
            break
        best = int(np.argmin(scores))
        name = names[start + best]
        found.append(LayerAgreement(layer, name, scores[best], _correlate(values[name], stream)))
        start += best + 1 if scores[best] < 0.5 else 0
    return found


def compare_layers(
    candidate: Candidate,
    ids_S: npt.NDArray[np.int64],
    streams: dict[str, Stream],
    matched: list[LayerAgreement],
) -> list[LayerAgreement]:
    """The same values of a graph against other streams, those of the original weights say."""
    if not matched:
        return []
    values = candidate.run_values(ids_S[:_NUM_TOKENS], [layer.value for layer in matched])
    return [
        LayerAgreement(
            layer.name,
            layer.value,
            _relative(values[layer.value], streams[layer.name]),
            _correlate(values[layer.value], streams[layer.name]),
        )
        for layer in matched
    ]


def report_layers(layers: list[LayerAgreement]) -> Check:
    """The layers as a Check that judges nothing."""
    metrics = {"layers": [asdict(layer) for layer in layers]}
    return Check("layers", None, metrics=metrics, required=False)


def _list_streams(proto: onnx.ModelProto, width: int) -> list[str]:
    """Values declared as floats of [batch, sequence, width], in the order of the nodes."""
    from onnx import TensorProto

    floats = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
    declared = set()
    for value in proto.graph.value_info:
        dims = value.type.tensor_type.shape.dim
        if (
            value.type.tensor_type.elem_type in floats
            and len(dims) == 3
            and dims[-1].dim_value in (0, width)
        ):
            declared.add(value.name)
    return [name for node in proto.graph.node for name in node.output if name in declared]


def _relative(a: npt.NDArray[Any], b: Stream) -> float:
    if a.size != b.size:
        return float("inf")
    difference = a.reshape(b.shape).astype(np.float64) - b
    value = float(np.linalg.norm(difference) / max(float(np.linalg.norm(b)), 1e-30))
    return value if np.isfinite(value) else float("inf")


def _correlate(a: npt.NDArray[Any], b: Stream) -> float:
    if a.size != b.size or not np.isfinite(a).all():
        return float("nan")
    return float(np.corrcoef(a.astype(np.float64).ravel(), b.astype(np.float64).ravel())[0, 1])
