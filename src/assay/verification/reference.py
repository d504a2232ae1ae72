"""The reference of record: PyTorch's full forward pass, eager attention, eval mode, no cache.

float32 is the truth that candidates are held against. The same weights run in float64 tell how
much of a difference is rounding.

The float64 run is the same function, not a different one: weights and buffers are the float32
values (so inv_freq is what it was), and rotary tables are computed as the original computes
them, in float32. Everything else that transformers casts to float32 on the way (norms, softmax,
router) runs in float64. Measured on tiny llama, qwen2 and gemma2 models over 800 tokens: an
onnxruntime graph with the original's tables lies 0.85 to 1.6 times this noise from the float32
run, at every weight scale. Angles in float64 would raise the noise two- to fivefold and hide
faults behind it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from assay.errors import DependencyError, OptionError, UnjudgedError
from assay.runtime import read_available_bytes
from assay.verification.filling import load_filled
from assay.verification.metrics import Noise, extend_noise, measure_noise
from assay.verification.streaming import find_stream, load_streamed, measure_size

if TYPE_CHECKING:
    import torch

__all__ = [
    "ReferenceRun",
    "find_window",
    "fresh_rotary_state",
    "ids_on_device",
    "in_float64",
    "load_reference",
    "run_half",
    "run_logits",
    "run_with_noise",
]

Ids = npt.NDArray[np.int64]
Logits = npt.NDArray[np.float32]

_MAX_FLOAT64_PRODUCTS = 1.5e11  # SmolLM2-135M over 800 tokens stays below
_NUM_NOISE_TOKENS = 256
_MEMORY_FOR_REST = 2 << 30  # bytes: torch itself, activations, the folder in ONNX Runtime


@dataclass(frozen=True)
class ReferenceRun:
    """A prompt, its float32 logits [S, V], and their noise at each position."""

    ids_S: Ids
    logits_SV: Logits
    noise: Noise


def load_reference(
    source: str | Path,
    *,
    streamed: bool | None = None,
    device: str = "cpu",
    own_reader: bool = False,
) -> torch.nn.Module:
    """Load a causal language model in float32 with eager attention, in eval mode.

    source: a checkpoint folder, a .gguf file, or a hub id. streamed: leave the weights in the
    checkpoint and read one decoder layer at a time; None does so where memory can't hold them
    twice, as the float64 run needs. device: where PyTorch computes, such as "cuda". own_reader:
    let assay's reader, not transformers', take the weights from a .gguf file (`filling`).
    Raises DependencyError without torch and transformers, UnjudgedError when it can't be loaded.
    """
    try:
        import torch
        from transformers import AutoModelForCausalLM
    except ImportError as exc:
        raise DependencyError(
            "assay verify",
            "torch and transformers aren't installed",
            next_step="pip install 'assay[verify]'",
        ) from exc
    _check_device(device)
    path = Path(source)
    if streamed or (streamed is None and _exceeds_memory(path)):
        with contextlib.nullcontext() if streamed else contextlib.suppress(UnjudgedError):
            return load_streamed(path, device=device)
    if own_reader and path.suffix == ".gguf":
        return load_filled(path).to(device)
    where, options = (str(source), {})
    if path.suffix == ".gguf":
        where, options = str(path.parent), {"gguf_file": path.name}
    try:
        with _quiet_transformers():
            model = AutoModelForCausalLM.from_pretrained(
                where, dtype=torch.float32, attn_implementation="eager", **options
            )
    except (OSError, ValueError, KeyError, ImportError, RuntimeError, AttributeError) as exc:
        raise UnjudgedError(
            str(source),
            f"transformers can't load the reference: {exc}",
            next_step="Give the checkpoint that the folder was exported from.",
        ) from exc
    use_plain_experts(model)
    reference: torch.nn.Module = model.eval().to(device)
    return reference


def use_plain_experts(model: Any) -> None:
    """Let experts run one after the other: transformers 5's grouped product has no float64."""
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")


def _check_device(device: str) -> None:
    import torch

    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as exc:
        raise OptionError(
            "device",
            f"PyTorch can't compute on {device!r}: {str(exc).splitlines()[0]}",
            next_step="Use cpu, or a build of PyTorch for that device.",
        ) from exc


def _exceeds_memory(path: Path) -> bool:
    """Whether a checkpoint folder in float64 would leave too little memory."""
    available = read_available_bytes()
    size = measure_size(path)
    return available is not None and size > 0 and 2 * size + _MEMORY_FOR_REST > available


@contextlib.contextmanager
def _quiet_transformers() -> Iterator[None]:
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        logging.enable_progress_bar()


def find_window(config: Any) -> int | None:
    """The narrowest active attention window of a transformers config, or None."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    kinds = set(getattr(text, "layer_types", None) or ())
    found = []
    window = getattr(text, "sliding_window", None)
    if kinds:
        active = any("sliding" in str(kind) for kind in kinds)
    else:
        active = bool(getattr(text, "use_sliding_window", True))
    if active and isinstance(window, int) and window > 0:
        found.append(window)
    if not kinds or any("chunked" in str(kind) for kind in kinds):
        found += [getattr(text, "attention_chunk_size", None) or 0]
    if "local" in (getattr(text, "attention_layers", None) or ()):
        found.append(text.window_size)  # gpt_neo
    return min((size for size in found if size), default=None)


def run_logits(model: torch.nn.Module, ids_S: Ids) -> Logits:
    """Float32 logits [S, V] of one prompt, over the full sequence and without a cache."""
    with fresh_rotary_state(model):
        return np.asarray(_forward(model, ids_S).float().numpy())


def run_with_noise(model: torch.nn.Module, ids_S: Ids) -> ReferenceRun:
    """Run a prompt in float32 and in float64.

    The model is cast in place, one parameter at a time, and cast back without loss: the peak is
    8 bytes a parameter. Where the float64 run would be long (beyond about 2e11 multiplications)
    it covers the first 256 tokens only, and later ones are given their noise.
    """
    logits_SV = run_logits(model, ids_S)
    num_parameters = sum(p.numel() for p in model.parameters())
    measured = len(ids_S)
    if num_parameters * measured > _MAX_FLOAT64_PRODUCTS:
        measured = min(measured, _NUM_NOISE_TOKENS)
    with fresh_rotary_state(model), in_float64(model):
        wide_PV = _forward(model, ids_S[:measured]).numpy()
    noise = measure_noise(logits_SV[:measured], wide_PV)
    return ReferenceRun(ids_S, logits_SV, extend_noise(noise, logits_SV))


def run_half(model: torch.nn.Module, ids_S: Ids) -> Logits:
    """Logits [S, V] of one prompt with weights and arithmetic in float16, as float32.

    A model that overflows in float16 gives NaN or infinity. Slow on most CPUs: keep it short.
    """
    import torch

    saved = [(p, p.data) for p in model.parameters() if p.is_floating_point()]
    buffers = [(module, dict(module._buffers)) for module in model.modules()]
    with fresh_rotary_state(model):
        try:
            for parameter, original in saved:
                parameter.data = original.half()
            for module, named in buffers:
                if "rotary" not in type(module).__name__.lower():  # its tables stay float32
                    module._buffers.update(
                        {
                            k: b.half()
                            for k, b in named.items()
                            if b is not None and b.dtype == torch.float32
                        }
                    )
            return np.asarray(_forward(model, ids_S).float().numpy())
        finally:
            for parameter, original in saved:
                parameter.data = original
            for module, named in buffers:
                module._buffers.update(named)


def ids_on_device(model: torch.nn.Module, ids_S: Ids) -> torch.Tensor:
    """One prompt as [1, S], where the model computes."""
    import torch

    stream = find_stream(model)
    device = stream.device if stream else next(model.parameters()).device
    return torch.from_numpy(np.array(ids_S[None])).to(device)


def _forward(model: torch.nn.Module, ids_S: Ids) -> torch.Tensor:
    import torch

    with torch.no_grad():
        output = model(input_ids=ids_on_device(model, ids_S), use_cache=False)
    logits: torch.Tensor = output.logits[0].cpu()
    return logits


@contextlib.contextmanager
def in_float64(model: torch.nn.Module, parts: Sequence[torch.nn.Module] = ()) -> Iterator[None]:
    """Cast weights and buffers to float64 and back, and casts to float32 inside to float64.

    parts: the modules to cast; all of the model when empty.
    """
    import torch

    chosen = list(parts) or [model]
    buffers = [(m, dict(m._buffers)) for part in chosen for m in part.modules()]
    parameters = [p for part in chosen for p in part.parameters() if p.is_floating_point()]
    assert all(p.dtype == torch.float32 for p in parameters), "the reference must be float32"
    mode = _float64_mode()
    hooks = []
    for module in _rotary_modules(model):
        hooks.append(module.register_forward_pre_hook(lambda *_: mode.pause()))
        hooks.append(module.register_forward_hook(lambda *_: mode.resume(), always_call=True))
    for part in chosen:
        part.double()
    try:
        with mode:
            yield
    finally:
        for hook in hooks:
            hook.remove()
        for parameter in parameters:
            parameter.data = parameter.data.float()
        for module, original in buffers:
            module._buffers.update(original)


def _float64_mode() -> Any:
    """A mode that turns every request for float32 into one for float64, unless paused."""
    import torch
    from torch.overrides import TorchFunctionMode

    class Float64Mode(TorchFunctionMode):
        depth = 0

        def pause(self) -> None:
            self.depth += 1

        def resume(self) -> None:
            self.depth -= 1

        def __torch_function__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            if self.depth:
                return func(*args, **kwargs)
            if func is torch.Tensor.float:
                return args[0].double()
            wide = tuple(torch.float64 if a is torch.float32 else a for a in args)
            named = {k: torch.float64 if v is torch.float32 else v for k, v in kwargs.items()}
            return func(*wide, **named)

    return Float64Mode()


def _rotary_modules(model: torch.nn.Module) -> list[torch.nn.Module]:
    return [m for m in model.modules() if "rotary" in type(m).__name__.lower()]


@contextlib.contextmanager
def fresh_rotary_state(model: torch.nn.Module) -> Iterator[None]:
    """Undo what a forward pass leaves behind in rotary modules.

    Dynamic and longrope scaling remember the longest sequence seen and would give the next,
    shorter prompt other frequencies.
    """
    saved = [
        (module, dict(module._buffers), dict(module.__dict__)) for module in _rotary_modules(model)
    ]
    try:
        yield
    finally:
        for module, buffers, attributes in saved:
            module.__dict__.update(attributes)
            module._buffers.clear()
            module._buffers.update(buffers)
