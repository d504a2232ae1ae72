"""The one registry of model specs, keyed by `config.model_type`."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from assay.errors import AssayError, UnknownArchitectureError
from assay.spec.model_spec import ModelSpec

__all__ = [
    "BrokenSpecError",
    "check_not_broken",
    "find_nearest_types",
    "get_broken_types",
    "get_spec",
    "get_specs",
    "has_spec",
    "mark_broken",
    "register",
]

_SPECS: dict[str, ModelSpec] = {}
_BROKEN: dict[str, BrokenSpecError] = {}


class BrokenSpecError(AssayError):
    """A type's specs.py can't be used: its own fault, and not that the type is unknown."""


def register(spec: ModelSpec) -> ModelSpec:
    """Add a spec. Registering the same model_type twice is a ValueError."""
    if spec.model_type in _SPECS:
        raise ValueError(f"model_type {spec.model_type!r} is registered twice")
    _SPECS[spec.model_type] = spec
    return spec


def get_spec(model_type: str) -> ModelSpec:
    """Return the spec of `model_type`.

    UnknownArchitectureError names the nearest ones; BrokenSpecError says where its file is broken.
    """
    check_not_broken(model_type)
    if model_type in _SPECS:
        return _SPECS[model_type]
    if not _SPECS:
        raise UnknownArchitectureError(
            f"model_type {model_type!r}",
            "no spec is loaded at all",
            next_step="Import assay.models first, or ask assay.get_spec, which does.",
        )
    near = find_nearest_types(model_type)
    hint = f"The nearest names are {', '.join(near)}. " if near else ""
    raise UnknownArchitectureError(
        f"model_type {model_type!r}",
        "no spec is registered for it",
        next_step=f"{hint}`assay models list` shows all {len(_SPECS)}; to add one, write "
        f"models/{model_type}/specs.py as docs/adding-a-model.md says.",
    )


def get_specs() -> tuple[ModelSpec, ...]:
    """Return every registered spec, by model_type."""
    return tuple(_SPECS[name] for name in sorted(_SPECS))


def mark_broken(
    model_type: str, where: str, reason: str, taken_back: Collection[str] = ()
) -> BrokenSpecError:
    """Remember that the folder of `model_type` can't be used; return the error that says so.

    where: the file and line. taken_back: types that it registered before it broke.
    """
    for name in taken_back:
        del _SPECS[name]
    _BROKEN[model_type] = BrokenSpecError(
        where,
        reason,
        next_step=f"{model_type} isn't unsupported; its specs.py is broken. Mend that file.",
    )
    return _BROKEN[model_type]


def get_broken_types() -> dict[str, BrokenSpecError]:
    """Return the model types whose specs.py can't be used, with the error that says why."""
    return dict(sorted(_BROKEN.items()))


def check_not_broken(model_type: str) -> None:
    """Raise the BrokenSpecError of a type whose specs.py can't be used."""
    if model_type in _BROKEN:
        error = _BROKEN[model_type]
        raise BrokenSpecError(
            error.where, error.found, next_step=error.next_step
        ) from error.__cause__


def has_spec(model_type: str) -> bool:
    """Whether a spec is registered for `model_type`."""
    return model_type in _SPECS


def find_nearest_types(model_type: str, count: int = 3) -> list[str]:
    """Return registered types whose name is closest to `model_type`."""
    return difflib.get_close_matches(model_type, sorted(_SPECS), n=count, cutoff=0.4)
