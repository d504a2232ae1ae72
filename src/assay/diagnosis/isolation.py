"""Each segment of the reference fed what the folder has there, all of them in one forward pass.

A segment is the embedding, one decoder layer, or the final norm and the head. The reference runs
as it is, but every layer reads the folder's own stream, so that an error shows in the segment that
makes it and in no other. Shapes: S tokens, H hidden size, V vocabulary; L layers have L + 1
streams.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from assay.diagnosis.hypothesis import list_layers
from assay.verification.metrics import relative_l2
from assay.verification.reference import fresh_rotary_state, ids_on_device, in_float64

if TYPE_CHECKING:
    import torch

__all__ = ["NUM_LOGITS", "Isolation", "Streams", "run_last_logits"]

Array = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]
_SLACK = 8.0  # times the noise of a segment: float32 of two runtimes lies below 3
_FLOOR = 4e-7
_HEAD_NOISE = 1.6e-7  # of the embedding and of one product with norm
_TINY = 1e-30  # stands for the norm of a reference that is zero
NUM_LOGITS = 64  # positions, the last ones, of which logits are compared
_HALF = {"float16": 6e-3, "bfloat16": 5e-2}


@dataclass(frozen=True)
class Streams:
    """What the folder computed for one prompt.

    streams_SH: L + 1 of them; none: not found. logits_SV: of the last positions.
    """

    ids_S: Ids
    streams_SH: tuple[Array, ...]
    logits_SV: Array

    @property
    def num_segments(self) -> int:
        """The embedding, the layers, the head; one for the whole model without streams."""
        return len(self.streams_SH) + 1 if self.streams_SH else 1


class Isolation:
    """Runs of a reference against a folder's streams.

    names: of the segments, as module paths. bounds: relL2 of each up to which a difference is
    rounding.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        streams: Streams,
        precision: str,
        layers: Sequence[str],
        bounds: npt.NDArray[np.float64] | None = None,
    ) -> None:
        self.model, self.streams, self.precision = model, streams, precision
        self._gives_tuples = False
        self._dtype: torch.dtype | None = None  # of the streams; None for the model's own
        accepted = inspect.signature(type(model).forward).parameters
        self._keeps_logits = "logits_to_keep" in accepted
        self._cache_name = "cache" if "cache" in accepted else "past_key_values"  # new, old
        self.names = [*_name_ends(model, layers)] if streams.streams_SH else ["*"]
        if bounds is not None:
            self.bounds = bounds
            return
        own = self._run()
        if precision in _HALF:
            self.bounds = np.full(len(own), _HALF[precision])
        else:
            self.bounds = np.maximum(_SLACK * self._measure_noise(own), _FLOOR)

    def _measure_noise(self, own: list[Array | None]) -> npt.NDArray[np.float64]:
        """relL2 of each segment in float32 against float64.

        The layers alone are cast: a table of a quarter of a million words isn't, and its products
        are as exact as any.
        """
        import torch

        if not self.streams.streams_SH:
            with in_float64(self.model):
                (wide,) = self._run()
            return np.asarray([_relative(own[0], wide)])  # type: ignore[arg-type]
        layers = [layer for _, layer in list_layers(self.model)]
        inner = range(1, len(self.names) - 1)
        self._dtype = torch.float64
        with in_float64(self.model, layers):
            wide_parts = self._run(list(inner))
        self._dtype = None
        noise = np.full(len(self.names), _HEAD_NOISE)
        for k in inner:
            noise[k] = _relative(own[k], wide_parts[k])  # type: ignore[arg-type]
        return noise

    def measure(
        self, segments: Collection[int] | None = None, cache: Any = None
    ) -> npt.NDArray[np.float64]:
        """relL2 of each segment's output against the folder's, with the model as it now is.

        segments: those to run; the others cost nothing and are NaN. None runs all. cache: of
        transformers, with the tokens before these; it grows by them.
        """
        wanted = (*self.streams.streams_SH, self.streams.logits_SV)
        found = self._run(segments, cache)
        return np.asarray(
            [np.nan if a is None else _relative(a, b) for a, b in zip(found, wanted, strict=True)]
        )

    def run(self, segment: int) -> Array | None:
        """What the reference gives for one segment, fed the folder's stream."""
        return self._run([segment])[segment]

    def _run(
        self, segments: Collection[int] | None = None, cache: Any = None
    ) -> list[Array | None]:
        """Each segment's output; None where it wasn't asked for."""
        import torch

        outputs: list[Array | None] = []
        model = self.model
        skipped = set() if segments is None else set(range(len(self.names))) - set(segments)
        with (
            torch.no_grad(),
            fresh_rotary_state(model),
            self._passed_over(skipped),
            self._forced(outputs),
        ):
            ids = ids_on_device(model, self.streams.ids_S)
            keywords: dict[str, Any] = {"use_cache": False}
            if cache is not None:
                keywords = {self._cache_name: cache}
            if self._keeps_logits:  # a wide vocabulary's would take gigabytes
                keywords["logits_to_keep"] = len(self.streams.logits_SV)
            logits = model(input_ids=ids, **keywords).logits
        outputs.append(_to_array(logits)[-len(self.streams.logits_SV) :])
        return [None if k in skipped else output for k, output in enumerate(outputs)]

    @contextlib.contextmanager
    def _passed_over(self, skipped: set[int]) -> Iterator[None]:
        """Layers and the head that needn't be run return at once; their streams are known."""
        import torch

        owners: list[Any] = []
        head: Any = self.model.get_output_embeddings()  # type: ignore[operator]
        for number, (_, layer) in enumerate(list_layers(self.model), start=1):
            if number in skipped:
                owners.append((layer, self._pass_on))
        if self.streams.streams_SH and len(self.names) - 1 in skipped and head is not None:
            width = head.weight.shape[0]
            owners.append((head, lambda x: torch.zeros(1, 1, 1).expand(*x.shape[:2], width)))
        saved = [(owner, owner.__dict__.get("forward")) for owner, _ in owners]
        for owner, forward in owners:
            owner.forward = forward
        try:
            yield
        finally:
            for owner, forward in saved:
                if forward is None:
                    del owner.forward
                else:
                    owner.forward = forward

    def _pass_on(self, hidden_states: torch.Tensor, *_: Any, **__: Any) -> Any:
        return (hidden_states,) if self._gives_tuples else hidden_states

    @contextlib.contextmanager
    def _forced(self, outputs: list[Array | None]) -> Iterator[None]:
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

    def _enter(self, outputs: list[Array | None]) -> Any:
        def enter(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            hidden = args[0] if args else kwargs["hidden_states"]
            outputs.append(_to_array(hidden))
            forced = self._as_tensor(0, hidden)
            if args:
                return (forced, *args[1:]), kwargs
            return args, {**kwargs, "hidden_states": forced}

        return enter

    def _leave(self, outputs: list[Array | None], number: int) -> Any:
        def leave(_: Any, __: Any, output: Any) -> Any:
            self._gives_tuples = isinstance(output, tuple)
            hidden = output[0] if isinstance(output, tuple) else output
            outputs.append(_to_array(hidden))
            forced = self._as_tensor(number, hidden)
            return (forced, *output[1:]) if isinstance(output, tuple) else forced

        return leave

    def _as_tensor(self, number: int, like: torch.Tensor) -> torch.Tensor:
        import torch

        forced = torch.from_numpy(self.streams.streams_SH[number]).reshape(like.shape)
        if self._dtype is not None and number == len(self.streams.streams_SH) - 1:
            return forced  # for the final norm, which isn't cast
        return forced.to(device=like.device, dtype=self._dtype or like.dtype)


def _name_ends(model: torch.nn.Module, layers: Sequence[str]) -> Iterator[str]:
    """The segments' module paths: embedding, layers, head."""
    paths = {id(module): name for name, module in model.named_modules()}
    head: Any = model.get_output_embeddings()  # type: ignore[operator]
    yield paths[id(model.get_input_embeddings())]  # type: ignore[operator]
    yield from layers
    yield paths.get(id(head), "lm_head")


def _to_array(value: torch.Tensor) -> Array:
    return np.asarray(value.detach()[0].cpu().numpy())


def _relative(a: Sequence[Any] | Array, b: Array) -> float:
    """relL2 of a against b; infinite where either isn't finite or the shapes differ."""
    left, right = np.asarray(a), np.asarray(b)
    if left.size != right.size:
        return float("inf")
    value = relative_l2(left.reshape(right.shape), right)
    value = value if right.any() else value / _TINY
    return value if np.isfinite(value) else float("inf")


def run_last_logits(model: torch.nn.Module, ids_S: Ids, count: int) -> Array:
    """The reference's own logits [count, V] of the last positions."""
    import torch

    accepted = inspect.signature(type(model).forward).parameters
    keywords = {"logits_to_keep": count} if "logits_to_keep" in accepted else {}
    with torch.no_grad(), fresh_rotary_state(model):
        ids = ids_on_device(model, ids_S)
        logits = model(input_ids=ids, use_cache=False, **keywords).logits
    return _to_array(logits)[-count:]
