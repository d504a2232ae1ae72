"""A hypothesis: "the folder computes what PyTorch would compute if this were changed in it".

The catalogue is data: each cause has an id, words, and one small function that lists its variants
for a given model. A variant changes the running reference in place and takes the change back. The
cause is found when the changed reference gives the folder's own wrong numbers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = [
    "Change",
    "Hypothesis",
    "Variant",
    "attribute",
    "generalize",
    "group_by_site",
    "hooked",
    "list_layers",
    "list_sites",
    "replaced",
    "rolled",
    "together",
    "values",
]

Site = tuple[str, Any]

Change = Callable[[], contextlib.AbstractContextManager[None]]
Hook = Callable[[Any, tuple[Any, ...], dict[str, Any], Any], Any]


@dataclass(frozen=True)
class Variant:
    """One way to be wrong.

    place: a module path, with `*` for the layer's number where the change bears on every layer
    (each is judged by itself). what: in a few words. elsewhere: the place where the change
    explains what lies outside of layers, shared: where it explains every layer that it bears on;
    place when empty.
    """

    place: str
    what: str
    change: Change
    elsewhere: str = ""
    shared: str = ""


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


def values(targets: Sequence[tuple[Any, Callable[[Any], Any]]]) -> Change:
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


def hooked(targets: list[tuple[Any, Hook]]) -> Change:
    """Change what modules return for a while: (module, function of inputs and output)."""

    @contextlib.contextmanager
    def change() -> Iterator[None]:
        def leave(hook: Hook) -> Any:
            return lambda module, args, kwargs, output: hook(module, args, kwargs, output)

        handles = [
            module.register_forward_hook(leave(hook), with_kwargs=True) for module, hook in targets
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    return change


def replaced(value: Any) -> Callable[[Any], Any]:
    """For `values`: this tensor instead."""
    return lambda _: value


def rolled(step: int) -> Callable[[Any], Any]:
    """For `values`: rows moved by so many places."""
    return lambda tensor: tensor.roll(step, 0)


def together(changes: list[Change]) -> Change:
    """Several changes at once."""

    @contextlib.contextmanager
    def change() -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for one in changes:
                stack.enter_context(one())
            yield

    return change


def generalize(name: str) -> str:
    """A module path with `*` for every number."""
    return ".".join("*" if part.isdigit() else part for part in name.split("."))


def group_by_site(sites: list[Site]) -> dict[str, list[Any]]:
    """Modules or parameters by their path with `*` for the layer's number."""
    groups: dict[str, list[Any]] = {}
    for name, value in sites:
        groups.setdefault(generalize(name), []).append(value)
    return groups


def list_sites(model: torch.nn.Module, wanted: Callable[[str, Any], bool]) -> list[Site]:
    """Modules inside the decoder layers, with their paths, that are wanted (own name, module)."""
    return [
        (f"{path}.{name}", module)
        for path, layer in list_layers(model)
        for name, module in layer.named_modules()
        if name and wanted(name.rsplit(".", 1)[-1], module)
    ]


def list_layers(model: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    """The decoder layers with their module paths."""
    import torch

    count = model.config.get_text_config().num_hidden_layers  # type: ignore[union-attr,operator]
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == count:
            return [(f"{name}.{index}", layer) for index, layer in enumerate(module)]
    return []
