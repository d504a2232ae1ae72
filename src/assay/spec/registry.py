"""The one registry of model specs, keyed by `config.model_type`."""

from __future__ import annotations

import difflib

from assay.errors import AssayError, UnknownArchitectureError
from assay.spec.model_spec import ModelSpec

__all__ = [
    "BrokenSpecError",
    "find_nearest_types",
    "get_broken_types",
    "get_spec",
    "get_specs",
    "has_spec",
    "mark_broken",
    "register",
]

_SPECS: dict[str, ModelSpec] = {}
_BROKEN: dict[str, Exception] = {}


class BrokenSpecError(AssayError):
    """A type's specs.py can't be imported: its own fault, and not that the type is unknown."""


def register(spec: ModelSpec) -> ModelSpec:
    """Add a spec. Registering the same model_type twice is a ValueError."""
    if spec.model_type in _SPECS:
        raise ValueError(f"model_type {spec.model_type!r} is registered twice")
    _SPECS[spec.model_type] = spec
    return spec


def get_spec(model_type: str) -> ModelSpec:
    """Return the spec of `model_type`.

    UnknownArchitectureError names the nearest ones; BrokenSpecError says that its file is broken.
    """
    if model_type in _BROKEN:
        reason = _BROKEN[model_type]
        raise BrokenSpecError(
            f"models/{model_type}/specs.py",
            f"it can't be imported ({type(reason).__name__}: {reason})",
            next_step="The type isn't unsupported; mend its file. The traceback above says where.",
        ) from reason
    if model_type in _SPECS:
        return _SPECS[model_type]
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


def mark_broken(model_type: str, reason: Exception) -> None:
    """Remember that the folder of `model_type` can't be imported, and why."""
    _BROKEN[model_type] = reason
    _SPECS.pop(model_type, None)


def get_broken_types() -> dict[str, Exception]:
    """Return the model types whose specs.py can't be imported, with the reason."""
    return dict(sorted(_BROKEN.items()))


def has_spec(model_type: str) -> bool:
    """Whether a spec is registered for `model_type`."""
    return model_type in _SPECS


def find_nearest_types(model_type: str, count: int = 3) -> list[str]:
    """Return registered types whose name is closest to `model_type`."""
    return difflib.get_close_matches(model_type, sorted(_SPECS), n=count, cutoff=0.4)
