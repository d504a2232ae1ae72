"""The way through the cache: a prefill is right, what follows it isn't.

The reference decodes on top of its own cache, fed the folder's streams of a decode; so an error
shows in the layer that reads its cache wrongly. What a layer may read instead is tried by changing
the reference's cache.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from assay.diagnosis.alignment import Alignment
from assay.diagnosis.causes.masks import change_mask, find_sizes
from assay.diagnosis.causes.sites import find_attentions
from assay.diagnosis.finding import Cause
from assay.diagnosis.hypothesis import Change
from assay.diagnosis.isolation import Isolation, Streams
from assay.diagnosis.search import SearchResult
from assay.errors import RuntimeFolderError
from assay.verification.candidate import Candidate

if TYPE_CHECKING:
    import torch

__all__ = ["examine_cache"]

Ids = npt.NDArray[np.int64]
_NUM_STEPS = 3
_SLACK = 4.0  # one position has more noise than many


@dataclass(frozen=True)
class _Reading:
    """A way to read the cache wrongly. edit: of the reference's cache; change: of the model."""

    cause: str
    what: str
    fix: str
    edit: Callable[[Any, int], None]
    change: Change


@dataclass(frozen=True)
class _Decode:
    """Steps of the reference on top of a cache, each with the folder's streams.

    before: the prompt that the steps follow. caches: of the reference, before each step.
    """

    before: Isolation
    steps: list[Isolation]
    caches: list[Any] = field(default_factory=list)

    def fill(self) -> None:
        """Make the caches anew, by the model as it now is."""
        from transformers import DynamicCache

        self.caches.clear()
        cache = DynamicCache()
        layers = range(1, len(self.before.names) - 1)
        self.before.measure(layers, cache)
        for step in self.steps:
            self.caches.append(copy.deepcopy(cache))
            step.measure(layers, cache)

    def measure(self, segments: list[int]) -> npt.NDArray[np.float64]:
        """The worst relL2 of each segment over the steps; NaN for those not asked for."""
        found = [
            step.measure(segments, copy.deepcopy(cache))
            for step, cache in zip(self.steps, self.caches, strict=True)
        ]
        return np.asarray(np.max(found, axis=0))

    def read_as(self, reading: _Reading, segment: int) -> float:
        """relL2 of one layer in the first step, reading its cache another way."""
        cache = copy.deepcopy(self.caches[0])
        reading.edit(cache, segment - 1)
        with reading.change():
            return float(self.steps[0].measure([segment], cache)[segment])


def examine_cache(
    candidate: Candidate,
    alignment: Alignment,
    isolation: Isolation,
    result: SearchResult,
) -> list[Cause]:
    """Causes that a decode shows and a prefill doesn't.

    result: what a prefill showed; each of its changes is granted in its own segments, and what it
    left unexplained is left out. Needs the streams, and a model with the folder's weights.
    """
    if not isolation.streams.streams_SH or len(isolation.streams.ids_S) < 2 * _NUM_STEPS:
        return []
    try:
        decode = _decode(candidate, alignment, isolation)
    except RuntimeFolderError as exc:
        return [_tell(_UNKNOWN, ["past_key_values"], f"a decode doesn't run: {exc.found}")]
    paths = {found.segment: found.path for found in result.explained}
    causes: dict[tuple[str, str], tuple[_Reading, list[str], str]] = {}
    layers = [k for k in range(1, len(isolation.names) - 1) if k not in result.unexplained]
    attentions = [path for path, _ in find_attentions(isolation.model)]
    for path in dict.fromkeys(paths.get(segment, ()) for segment in layers):
        segments = [segment for segment in layers if paths.get(segment, ()) == path]
        with contextlib.ExitStack() as granted:
            for step in path:
                granted.enter_context(step.variant.change())
            decode.fill()
            errors = decode.measure(segments)
            for segment in segments:
                if errors[segment] <= _SLACK * isolation.bounds[segment]:
                    continue
                reading, after = _find(decode, isolation, segment)
                words = f"a decode parts by relL2 {errors[segment]:.3g} where a prefill is right; "
                words += reading.what + ("" if after is None else f": {after:.3g}")
                key = reading.cause, reading.what
                _, places, _ = causes.setdefault(key, (reading, [], words))
                layer = isolation.names[segment]
                places.append(next((p for p in attentions if p.startswith(f"{layer}.")), layer))
    return [_tell(reading, places, words) for reading, places, words in causes.values()]


def _tell(reading: _Reading, places: list[str], evidence: str) -> Cause:
    return Cause(
        id=reading.cause,
        place=", ".join(places),
        confidence=0.5 if reading is _UNKNOWN else 1.0,
        evidence=evidence,
        fix=reading.fix,
    )


def _decode(candidate: Candidate, alignment: Alignment, isolation: Isolation) -> _Decode:
    """Let the folder decode the last tokens of the prompt, and keep its streams."""
    own = isolation.streams
    start = len(own.ids_S) - _NUM_STEPS
    layers = isolation.names[1:-1]

    def isolate(ids: Ids, streams: tuple[Any, ...]) -> Isolation:
        given = Streams(ids, streams, own.logits_SV[-len(ids) :])  # which nobody asks for
        return Isolation(isolation.model, given, isolation.precision, layers, isolation.bounds)

    before = tuple(stream[:start] for stream in own.streams_SH)
    decode = _Decode(isolate(own.ids_S[:start], before), [])
    names = alignment.stream_names
    _, state = candidate.feed_values(candidate.start(), own.ids_S[:start], names)
    for position in range(start, len(own.ids_S)):
        token = own.ids_S[position : position + 1]
        values, state = candidate.feed_values(state, token, names)
        decode.steps.append(isolate(token, alignment.add_streams(values)))
    candidate.close()
    return decode


def _find(decode: _Decode, isolation: Isolation, segment: int) -> tuple[_Reading, float | None]:
    for reading in _list_readings(isolation.model, len(decode.caches[0].layers), segment - 1):
        try:
            after = decode.read_as(reading, segment)
        except (RuntimeError, ValueError, TypeError, IndexError):
            continue  # a reading that this cache can't have
        if after <= _SLACK * isolation.bounds[segment]:
            return reading, after
    return _UNKNOWN, None


def _list_readings(model: torch.nn.Module, count: int, layer: int) -> Iterator[_Reading]:
    wiring = "connect each layer's past keys and values to its own attention, keys to keys"
    yield _Reading("kv_wiring", "keys and values exchanged", wiring, _exchange, _as_it_is)
    for other in range(count):
        if other != layer:
            yield _Reading(
                "kv_wiring", f"the cache of layer {other}", wiring, _take(other), _as_it_is
            )
    for name in ("keys", "values"):
        for other in range(count):
            if other != layer:
                what = f"the {name} of layer {other}"
                yield _Reading("kv_wiring", what, wiring, _take(other, name), _as_it_is)
    attentions = [module for _, module in find_attentions(model)]
    alone = change_mask(attentions, 1)
    yield _Reading(
        "kv_past_dropped",
        "nothing of the cache seen",
        "read the past keys and values, and append the new ones",
        lambda *_: None,
        alone,
    )
    sizes = find_sizes(model)
    for window in (None, *(s + d for s in sizes for d in (0, 1, -1) if s + d > 0)):
        yield _Reading(
            "window_in_decode",
            "no window in a decode" if window is None else f"a window of {window} in a decode",
            "the window counts cached keys too: from the query's own slot",
            lambda *_: None,
            change_mask(attentions, window),
        )
    for step in (1, -1):
        yield _Reading(
            "kv_shifted",
            f"cached tokens moved by {step}",
            "append new keys and values behind the cached ones, at their own slot",
            _roll(step),
            _as_it_is,
        )


_UNKNOWN = _Reading(
    "cache",
    "no known way of reading the cache wrongly fits",
    "return each layer's keys and values, and read them back in the same slot and order",
    lambda *_: None,
    contextlib.nullcontext,
)
_as_it_is: Change = contextlib.nullcontext


def _exchange(cache: Any, layer: int) -> None:
    own = cache.layers[layer]
    own.keys, own.values = own.values, own.keys


def _take(other: int, name: str = "") -> Callable[[Any, int], None]:
    def edit(cache: Any, layer: int) -> None:
        for which in (name,) if name else ("keys", "values"):
            setattr(cache.layers[layer], which, getattr(cache.layers[other], which))

    return edit


def _roll(step: int) -> Callable[[Any, int], None]:
    def edit(cache: Any, layer: int) -> None:
        own = cache.layers[layer]
        own.keys, own.values = own.keys.roll(step, 2), own.values.roll(step, 2)

    return edit
