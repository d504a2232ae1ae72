"""A reference larger than memory: transformers' own forward pass, weights read as they are used.

The model is built without weights. Hooks read those of one decoder layer from the checkpoint when
the layer is called, in the dtype that its placeholder has at that moment (so the float64 and
float16 runs need nothing of their own), and drop them afterwards. The embedding reads the rows
that the prompt asks for; a large head multiplies block by block. What remains in memory is a
constant, one layer, and activations.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from assay.checkpoint import Checkpoint, open_checkpoint
from assay.errors import UnjudgedError

if TYPE_CHECKING:
    import torch

__all__ = [
    "WeightStream",
    "build_empty",
    "find_stream",
    "load_streamed",
    "map_parameters",
    "measure_size",
]

Rows = npt.NDArray[np.float32]
Overlay = Callable[[slice, Rows], None]

_BLOCK_BYTES = 32 << 20
_LARGE_BYTES = 64 << 20
_ATTRIBUTE = "_assay_stream"


class WeightStream:
    """Where each parameter's values come from: a tensor of the checkpoint, with changes laid over.

    sources: parameter name -> tensor name. overlays: parameter name -> functions that put other
    values into a stretch of its rows (float32, in place).
    """

    def __init__(
        self, checkpoint: Checkpoint, sources: dict[str, str], device: str = "cpu"
    ) -> None:
        self.checkpoint = checkpoint
        self.device = device
        self.sources = sources
        self.overlays: dict[str, list[Overlay]] = {}

    def read_rows(self, name: str, start: int = 0, stop: int | None = None) -> Rows:
        """Rows [start, stop) of a parameter seen as 2-D, float32, as the file has them."""
        tensor = self.sources[name]
        end = self.checkpoint.tensors[tensor].num_rows if stop is None else stop
        return self.checkpoint.read_rows(tensor, start, end).astype(np.float32)

    def load_rows(self, name: str, start: int = 0, stop: int | None = None) -> Rows:
        """The same with the changes laid over."""
        rows = self.read_rows(name, start, stop)
        for change in self.overlays.get(name, ()):
            change(slice(start, start + len(rows)), rows)
        return rows


def measure_size(source: Path) -> int:
    """Bytes that a checkpoint folder's weights take in float32; 0 where they can't be told."""
    if not (source / "config.json").is_file():
        return 0
    with open_checkpoint(source) as checkpoint:
        return sum(4 * info.num_rows * info.num_columns for info in checkpoint.tensors.values())


def find_stream(model: torch.nn.Module) -> WeightStream | None:
    """The stream behind a model that `load_streamed` made; None for one that lies in memory."""
    return getattr(model, _ATTRIBUTE, None)


def load_streamed(source: str | Path, *, device: str = "cpu") -> torch.nn.Module:
    """Build a causal language model whose weights stay in the checkpoint.

    source: a folder of safetensors. Raises UnjudgedError where a parameter has no tensor of its
    shape in the files (weights that transformers converts on loading).
    """
    from transformers import AutoConfig

    model = build_empty(AutoConfig.from_pretrained(source))
    checkpoint = open_checkpoint(Path(source))
    sources = map_parameters(model, checkpoint, str(source))
    stream = WeightStream(checkpoint, sources, device)
    for module in model.modules():
        module._buffers.update(
            {k: b.to(device) for k, b in module._buffers.items() if b is not None}
        )
    setattr(model, _ATTRIBUTE, stream)
    for name, unit in _list_units(model):
        _stream_unit(stream, name, unit)
    reference: torch.nn.Module = model.eval()
    return reference


def build_empty(config: Any) -> Any:
    """A causal language model in float32 with eager attention, its parameters on the meta device.

    config: transformers'.
    """
    import torch
    from accelerate import init_empty_weights
    from transformers import AutoModelForCausalLM

    with _without_initialization(), init_empty_weights(include_buffers=False):
        model = AutoModelForCausalLM.from_config(
            config, attn_implementation="eager", dtype=torch.float32
        )
    model.tie_weights()
    return model


@contextlib.contextmanager
def _without_initialization() -> Iterator[None]:
    """transformers' own switch, which lies elsewhere in 4.57."""
    try:
        from transformers.initialization import no_init_weights
    except ImportError:
        from transformers.modeling_utils import no_init_weights
    with no_init_weights():
        yield


def map_parameters(model: torch.nn.Module, checkpoint: Checkpoint, where: str) -> dict[str, str]:
    """The tensor behind each parameter: of its name, or the one that shares the longest end."""
    by_tail: dict[str, list[str]] = {}
    for name in checkpoint.tensors:
        by_tail.setdefault(".".join(name.split(".")[-2:]), []).append(name)
    tied = _group_tied(model)
    sources: dict[str, str] = {}
    missing = []
    for name, parameter in model.named_parameters(remove_duplicate=False):
        aliases = tied[id(parameter)]
        found = next(
            (f for a in aliases if (f := _find_tensor(a, parameter, checkpoint, by_tail))), None
        )
        if found is None:
            missing.append(name)
        else:
            sources[name] = found
    _take_left_over(model, checkpoint, sources, missing)
    if missing:
        raise UnjudgedError(
            where,
            f"{len(missing)} parameters have no tensor of their shape in the files: "
            f"{', '.join(missing[:3])}",
            next_step="transformers converts these weights on loading: the reference needs to "
            "lie in memory whole.",
        )
    return sources


def _take_left_over(
    model: torch.nn.Module, checkpoint: Checkpoint, sources: dict[str, str], missing: list[str]
) -> None:
    """Give a parameter without a tensor the one unused tensor of its shape (a renamed head)."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    used = set(sources.values())
    for name in list(missing):
        shape = tuple(parameters[name].shape)
        rivals = [other for other in missing if tuple(parameters[other].shape) == shape]
        unused = [t for t, i in checkpoint.tensors.items() if t not in used and i.shape == shape]
        if len(rivals) == len(unused) == 1:
            sources[name] = unused[0]
            missing.remove(name)


def _group_tied(model: torch.nn.Module) -> dict[int, list[str]]:
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return names


def _find_tensor(
    name: str,
    parameter: torch.nn.Parameter,
    checkpoint: Checkpoint,
    by_tail: dict[str, list[str]],
) -> str | None:
    shape = tuple(parameter.shape)
    if name in checkpoint.tensors:
        return name if checkpoint.tensors[name].shape == shape else None
    parts = name.split(".")
    candidates = by_tail.get(".".join(parts[-2:]), [])
    shared = {other: _count_shared(parts, other.split(".")) for other in candidates}
    best = max(shared.values(), default=0)
    longest = [other for other, length in shared.items() if length == best]
    if len(longest) != 1 or checkpoint.tensors[longest[0]].shape != shape:
        return None
    left_over = longest[0].split(".")[:-best] + parts[:-best]
    return None if any(part.isdigit() for part in left_over) else longest[0]


def _count_shared(a: list[str], b: list[str]) -> int:
    count = 0
    for left, right in zip(reversed(a), reversed(b), strict=False):
        if left != right:
            break
        count += 1
    return count


def _list_units(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Modules whose weights come and go together: each decoder layer, and whatever is outside."""
    import torch

    inside: list[str] = []
    for name, module in model.named_modules():
        if any(name.startswith(prefix) for prefix in inside):
            continue
        if isinstance(module, torch.nn.ModuleList):
            inside.append(f"{name}.")
            yield from ((f"{name}.{index}", layer) for index, layer in enumerate(module))
        elif any(True for _ in module.parameters(recurse=False)):
            yield name, module


def _stream_unit(stream: WeightStream, name: str, unit: torch.nn.Module) -> None:
    """Let a unit's weights live only while it runs."""
    import torch

    if isinstance(unit, torch.nn.Embedding):
        unit.register_forward_pre_hook(_EmbeddingRows(stream, f"{name}.weight"))
        unit.register_forward_hook(_put_away, always_call=True)
        return
    if type(unit) is torch.nn.Linear and unit.weight.numel() * 4 > _LARGE_BYTES:
        unit.forward = _BlockwiseLinear(stream, name, unit).run  # type: ignore[assignment,method-assign]
        return

    def load(module: torch.nn.Module, _: Any) -> None:
        for path, owner in module.named_modules():
            for key, parameter in owner.named_parameters(recurse=False):
                full = ".".join(filter(None, (name, path, key)))
                values = stream.load_rows(full).reshape(tuple(parameter.shape))
                tensor = torch.from_numpy(values).to(stream.device, parameter.dtype)
                _replace(owner, key, parameter, tensor)

    unit.register_forward_pre_hook(load)
    unit.register_forward_hook(_put_away, always_call=True)


_PLACEHOLDER = "_assay_placeholders"


def _replace(
    owner: torch.nn.Module, key: str, placeholder: torch.Tensor, values: torch.Tensor
) -> None:
    import torch

    owner.__dict__.setdefault(_PLACEHOLDER, {})[key] = placeholder
    owner._parameters[key] = torch.nn.Parameter(values, requires_grad=False)


def _put_away(unit: torch.nn.Module, *_: Any) -> None:
    for owner in unit.modules():
        owner._parameters.update(owner.__dict__.pop(_PLACEHOLDER, {}))


class _EmbeddingRows:
    """Reads the rows of an embedding that the ids ask for; untouched rows cost no memory."""

    def __init__(self, stream: WeightStream, name: str) -> None:
        self.stream, self.name = stream, name

    def __call__(self, module: torch.nn.Embedding, inputs: tuple[Any, ...]) -> None:
        import torch

        placeholder = module.weight
        table = torch.empty(placeholder.shape, dtype=placeholder.dtype, device=self.stream.device)
        for row in torch.unique(inputs[0]).tolist():
            table[row] = torch.from_numpy(self.stream.load_rows(self.name, row, row + 1)[0])
        _replace(module, "weight", placeholder, table)


class _BlockwiseLinear:
    """x W^T + b, a block of W's rows at a time."""

    def __init__(self, stream: WeightStream, name: str, module: torch.nn.Linear) -> None:
        self.stream, self.name, self.module = stream, name, module

    def run(self, x: torch.Tensor) -> torch.Tensor:
        """What the module's own forward gives."""
        import torch

        rows, columns = self.module.weight.shape
        step = max(1, _BLOCK_BYTES // (4 * columns))
        output = x.new_empty((*x.shape[:-1], rows))
        for start in range(0, rows, step):
            stop = min(rows, start + step)
            values = self.stream.load_rows(f"{self.name}.weight", start, stop)
            block = torch.from_numpy(values).to(x.device, x.dtype)
            output[..., start:stop] = torch.nn.functional.linear(x, block)
        if self.module.bias is not None:
            bias = self.stream.load_rows(f"{self.name}.bias").reshape(-1)
            output += torch.from_numpy(bias).to(x.device, x.dtype)
        return output
