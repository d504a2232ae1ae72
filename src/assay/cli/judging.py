"""What verify and export share: the verdict, its certificate and its report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import AssayError, OutputError, RuntimeFolderError, UnjudgedError

if TYPE_CHECKING:
    from assay.verification import Verdict

__all__ = [
    "Judged",
    "check_report",
    "find_place",
    "has_reference_packages",
    "judge",
    "judge_export",
    "warn",
    "write_report",
]

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Judged:
    """A verdict and what was kept of it.

    certificate: parity.json without the verdict, and its path; None where none was written.
    """

    verdict: Verdict
    certificate: Mapping[str, Any] | None

    def to_json(self) -> dict[str, Any]:
        """The verdict's own keys, and `certificate`."""
        return {**self.verdict.to_dict(), "certificate": self.certificate}

    def to_text(self) -> str:
        """The verdict, and where its certificate lies."""
        text = self.verdict.to_text()
        return f"{text}\ncertificate: {self.certificate['path']}" if self.certificate else text


def judge(folder: str, reference: str, *, keep: bool, progress: Progress, **options: Any) -> Judged:
    """Judge a folder, and keep the certificate beside it.

    keep: whether to write one; a folder that can't be written to gets a warning instead.
    options: of `verify_folder`. Raises what that raises.
    """
    from assay.verification import verify_folder
    from assay.verification.file_hashes import snapshot_folder

    _warn_of_shadows()
    place = find_place(folder)
    before = snapshot_folder(place) if keep else None
    verdict = verify_folder(folder, reference, progress=progress, **options)
    return Judged(verdict, _keep(place, verdict, before, progress) if keep else None)


def judge_export(
    folder: str, reference: str, *, precision: str, progress: Progress, **options: Any
) -> Judged:
    """Judge a folder that was just written; whatever stands in the way becomes the verdict."""
    from assay.verification.verdict import Check, reach_verdict

    try:
        return judge(folder, reference, keep=True, progress=progress, **options)
    except AssayError as exc:
        is_folders_fault = isinstance(exc, RuntimeFolderError)
        check = Check(
            "loads" if is_folders_fault else "reference",
            False if is_folders_fault else None,
            detail=str(exc),
            outcome=type(exc).__name__,
        )
    verdict = reach_verdict([check], folder=folder, reference=reference, precision=precision)
    return Judged(verdict, _keep(Path(folder), verdict, None, progress))


def has_reference_packages() -> bool:
    """Can the packages of assay[verify] be imported? They aren't."""
    from assay.environment.origins import find_origin

    origins = [find_origin(name) for name in ("torch", "transformers")]
    return all(origin is not None and origin.kind != "namespace" for origin in origins)


def find_place(folder: str) -> Path:
    """Where a certificate belongs: in the folder, also where its graph was given."""
    path = Path(folder)
    return path.parent if path.suffix == ".onnx" else path


def check_report(path: str | None) -> None:
    """Refuse a report that has no folder to lie in, before any work is done."""
    if path and not Path(path).parent.is_dir():
        raise OutputError(
            path,
            f"the folder {Path(path).parent} doesn't exist",
            next_step="Create it, or choose another place for the report.",
        )


def write_report(path: str, judged: Judged) -> None:
    """Write the HTML report of a verdict."""
    from assay.reports import write_report as write

    write(path, judged.to_json())


def warn(line: str) -> None:
    """One line on stderr, also where no progress is wanted."""
    print(f"assay: warning: {line}", file=sys.stderr, flush=True)


def _warn_of_shadows() -> None:
    from assay.environment import read_environment

    for stray in read_environment().shadows:
        warn(stray.to_text())


def _keep(
    place: Path, verdict: Verdict, before: Any, progress: Progress
) -> Mapping[str, Any] | None:
    from assay.verification.certificate import read_certificate, write_certificate

    progress("hashing the folder")
    try:
        path = write_certificate(place, verdict, before=before)
        content = dict(read_certificate(place).content)
    except (OutputError, RuntimeFolderError, UnjudgedError) as exc:
        warn(f"no certificate was written: {exc.where}: {exc.found}")
        return None
    del content["verdict"]
    return {"path": str(path), **content}
