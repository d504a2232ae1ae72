"""A hypothesis: "the folder computes what PyTorch would compute if this were changed in it".

The catalogue is data: each cause has an id, words, and one small function that lists its variants
for a given model. A variant changes the running reference in place and takes the change back. The
cause is found when the changed reference gives the folder's own wrong numbers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["Hypothesis", "Variant", "attribute", "list_layers", "values"]

Change = Callable[[], contextlib.AbstractContextManager[None]]


@dataclass(frozen=True)
class Variant:
    """One way to be wrong. place: a module path, `*` for every layer. what: in a few words."""

    place: str
    what: str
    change: Change


@dataclass(frozen=True)
class Hypothesis:
    """A cause of the catalogue. variants: those that a model can have at all."""

    id: str
    symptom: str
    fix: str
    variants: Callable[[torch.nn.Module], Iterator[Variant]]


def attribute(targets: list[tuple[Any, str, Any]]) -> Change:
    """Set attributes (object, name, value) for a while."""

    @contextlib.contextmanager
    def change() -> Iterator[None]:
        saved = [(owner, name, getattr(owner, name)) for owner, name, _ in targets]
        try:
            for owner, name, value in targets:
                setattr(owner, name, value)
            yield
        finally:
            for owner, name, value in saved:
                setattr(owner, name, value)

    return change


def values(targets: list[tuple[torch.Tensor, Callable[[torch.Tensor], torch.Tensor]]]) -> Change:
    """Compute new values for parameters or buffers, and put the old ones back afterwards."""

    @contextlib.contextmanager
    def change() -> Iterator[None]:
        saved = [(tensor, tensor.data) for tensor, _ in targets]
        try:
            for tensor, compute in targets:
                tensor.data = compute(tensor.data)
            yield
        finally:
            for tensor, original in saved:
                tensor.data = original

    return change


def list_layers(model: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    """The decoder layers with their module paths."""
    import torch

    count = model.config.get_text_config().num_hidden_layers  # type: ignore[union-attr,operator]
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == count:
            return [(f"{name}.{index}", layer) for index, layer in enumerate(module)]
    return []
