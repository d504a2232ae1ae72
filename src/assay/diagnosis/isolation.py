"""Each segment of the reference fed what the folder has there, all of them in one forward pass.

A segment is the embedding, one decoder layer, or the final norm and the head. The reference runs
as it is, but every layer reads the folder's own stream, so that an error shows in the segment that
makes it and in no other. Shapes: S tokens, H hidden size, V vocabulary; L layers have L + 1
streams.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from assay.diagnosis.hypothesis import list_layers
from assay.verification.reference import fresh_rotary_state, ids_on_device, in_float64

if TYPE_CHECKING:
    import torch

__all__ = ["Isolation", "Streams"]

Array = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]
_SLACK = 8.0  # times the noise of a segment: float32 of two runtimes lies below 3
_FLOOR = 4e-7
_HALF = {"float16": 6e-3, "bfloat16": 5e-2}


@dataclass(frozen=True)
class Streams:
    """What the folder computed for one prompt. streams_SH: L + 1 of them; none: not found."""

    ids_S: Ids
    streams_SH: tuple[Array, ...]
    logits_SV: Array

    @property
    def num_segments(self) -> int:
        """The embedding, the layers, the head; one for the whole model without streams."""
        return len(self.streams_SH) + 1 if self.streams_SH else 1


class Isolation:
    """Runs of a reference against a folder's streams.

    bounds: relL2 of each segment up to which a difference is rounding.
    """

    def __init__(self, model: torch.nn.Module, streams: Streams, precision: str) -> None:
        self.model, self.streams = model, streams
        self._wide: list[Array] | None = None
        layers = [path for path, _ in list_layers(model)]
        self.names = ["model.embed_tokens", *layers, "lm_head"] if streams.streams_SH else ["*"]
        own = self._run()
        if precision in _HALF:
            self.bounds = np.full(len(own), _HALF[precision])
        else:
            with in_float64(model):
                wide = self._run()
            noise = [_relative(a, b) for a, b in zip(own, wide, strict=True)]
            self.bounds = np.maximum(_SLACK * np.asarray(noise), _FLOOR)

    def measure(self) -> npt.NDArray[np.float64]:
        """relL2 of each segment's output against the folder's, with the model as it now is."""
        wanted = (*self.streams.streams_SH, self.streams.logits_SV)
        found = self._run()
        return np.asarray([_relative(a, b) for a, b in zip(found, wanted, strict=True)])

    def _run(self) -> list[Array]:
        """Each segment's output."""
        import torch

        outputs: list[Array] = []
        model = self.model
        with torch.no_grad(), fresh_rotary_state(model), self._forced(outputs):
            ids = ids_on_device(model, self.streams.ids_S)
            logits = model(input_ids=ids, use_cache=False).logits
        outputs.append(_to_array(logits))
        return outputs

    @contextlib.contextmanager
    def _forced(self, outputs: list[Array]) -> Iterator[None]:
        """Record what enters the first layer and leaves each, and put the folder's there."""
        if not self.streams.streams_SH:
            yield
            return
        layers = [layer for _, layer in list_layers(self.model)]
        hooks = [layers[0].register_forward_pre_hook(self._enter(outputs), with_kwargs=True)]
        for number, layer in enumerate(layers, start=1):
            hooks.append(layer.register_forward_hook(self._leave(outputs, number)))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _enter(self, outputs: list[Array]) -> Any:
        def enter(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            hidden = args[0] if args else kwargs["hidden_states"]
            outputs.append(_to_array(hidden))
            forced = self._as_tensor(0, hidden)
            if args:
                return (forced, *args[1:]), kwargs
            return args, {**kwargs, "hidden_states": forced}

        return enter

    def _leave(self, outputs: list[Array], number: int) -> Any:
        def leave(_: Any, __: Any, output: Any) -> Any:
            hidden = output[0] if isinstance(output, tuple) else output
            outputs.append(_to_array(hidden))
            forced = self._as_tensor(number, hidden)
            return (forced, *output[1:]) if isinstance(output, tuple) else forced

        return leave

    def _as_tensor(self, number: int, like: torch.Tensor) -> torch.Tensor:
        import torch

        return torch.from_numpy(self.streams.streams_SH[number]).to(like).reshape(like.shape)


def _to_array(value: torch.Tensor) -> Array:
    return np.asarray(value.detach()[0].cpu().numpy())


def _relative(a: Sequence[Any] | Array, b: Array) -> float:
    """relL2 of a against b; infinite where either isn't finite or the shapes differ."""
    left, right = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if left.size != right.size:
        return float("inf")
    error = np.linalg.norm(left.reshape(right.shape) - right)
    value = float(error / max(float(np.linalg.norm(right)), 1e-30))
    return value if np.isfinite(value) else float("inf")
