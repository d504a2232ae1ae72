"""What CI plants: every kind of fault once or twice, types in turn, and three peers' folders."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

from tests.diagnosis.planting.encodings import ENCODING_FAULTS
from tests.diagnosis.planting.fault import Fault
from tests.diagnosis.planting.graphs import GRAPH_FAULTS
from tests.diagnosis.planting.plans import PLAN_FAULTS
from tests.diagnosis.planting.rooms import write_tokenizer
from tests.diagnosis.planting.weights import WEIGHT_FAULTS
from tests.twins.cases import BASES, CASES, TwinCase
from tests.twins.twin import build_twin

__all__ = ["ALL", "PEERS", "list_cases", "unpack_peer"]

ALL: tuple[Fault, ...] = (*PLAN_FAULTS, *WEIGHT_FAULTS, *GRAPH_FAULTS, *ENCODING_FAULTS)
PEERS = tuple(
    sorted(path.name.split(".")[0] for path in (Path(__file__).parents[1] / "peers").glob("*.xz"))
)
_SCALED = ("linear", "yarn", "llama3", "longrope_short", "clip")


def list_cases(number: int) -> Iterator[TwinCase]:
    """Cases in which to try a fault; each begins with another type, so that all have a turn."""
    bases = list(BASES.values())
    scaled = [case for case in CASES if any(word in case.name for word in _SCALED)]
    start = number % len(bases)
    yield from bases[start:] + bases[:start]
    yield from scaled


def unpack_peer(name: str, room: Path) -> Path:
    """A peer's export of a tiny twin, made on a machine that has the peer; hf lies beside it."""
    build_twin(BASES[name.split("-", maxsplit=1)[0]], 0.12, room / "hf")
    write_tokenizer(room / "hf")
    archive = Path(__file__).parents[1] / "peers" / f"{name}.tar.xz"
    with tarfile.open(archive) as packed:
        packed.extractall(room, filter="data")
    return room / name
