"""Which tensor of a checkpoint holds which weight: every tensor mapped, ignored, or an error."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping

from assay.errors import WeightError
from assay.spec.model_spec import WeightsSpec

__all__ = ["WeightMap"]


class WeightMap:
    """Looks weights up by Hugging Face module path, and remembers which tensors were used.

    shapes: tensor name in the file -> shape. specs: from the outermost model to the text part,
    each with its renames and its ignored tensors. where: names the checkpoint in errors.
    """

    def __init__(
        self, shapes: Mapping[str, tuple[int, ...]], specs: tuple[WeightsSpec, ...], *, where: str
    ) -> None:
        self._shapes = shapes
        self._specs = specs
        self._where = where
        self._used: set[str] = set()
        self._file_names: dict[str, str] = {}
        for file_name in shapes:
            path = self._rename(file_name)
            if path in self._file_names:
                raise WeightError(
                    where,
                    f"the tensors {self._file_names[path]} and {file_name} both stand for {path}",
                )
            self._file_names[path] = file_name

    def _rename(self, name: str) -> str:
        for spec in self._specs:
            for prefix, replacement in spec.renames:
                if name.startswith(prefix):
                    name = replacement + name[len(prefix) :]
                    break
        return name

    def __contains__(self, path: str) -> bool:
        return path in self._file_names

    def use(self, path: str, shape: tuple[int, ...]) -> str:
        """Return the file's name of the tensor at `path`, and count it as used.

        Raises WeightError where it is missing or has another shape than the config says.
        """
        if path not in self._file_names:
            raise WeightError(
                self._where,
                f"the tensor {path} is missing",
                expected=f"shape {list(shape)}",
                next_step="Check that config.json belongs to these weights, and that every shard "
                "was downloaded.",
            )
        file_name = self._file_names[path]
        if tuple(self._shapes[file_name]) != shape:
            raise WeightError(
                self._where,
                f"the tensor {file_name} has shape {list(self._shapes[file_name])}",
                expected=f"{list(shape)}, from config.json",
                next_step="Check that config.json belongs to these weights.",
            )
        self._used.add(file_name)
        return file_name

    def ignore(self, path: str) -> None:
        """Count a tensor as accounted for, where it only repeats another (a tied head)."""
        if path in self._file_names:
            self._used.add(self._file_names[path])

    def check_all_used(self) -> None:
        """Raise WeightError for a tensor that nothing uses and no spec ignores."""
        patterns = [pattern for spec in self._specs for pattern, _ in spec.ignored]
        left = [
            file_name
            for path, file_name in self._file_names.items()
            if file_name not in self._used
            and not any(
                fnmatch.fnmatchcase(name, pattern)
                for pattern in patterns
                for name in (path, file_name)
            )
        ]
        if left:
            shown = ", ".join(left[:8]) + (f" and {len(left) - 8} more" if len(left) > 8 else "")
            noun = "tensor has" if len(left) == 1 else "tensors have"
            raise WeightError(
                self._where,
                f"{len(left)} {noun} no place in the spec: {shown}",
                next_step="Map them in the model's specs.py, or list them there as ignored with a "
                "reason. Dropping them silently could change the logits.",
            )
