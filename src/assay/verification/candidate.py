"""The candidate: a folder's graph in plain ONNX Runtime, driven through its caches.

Shapes: B rows, S new tokens, T past and new tokens, V vocabulary. Logits come back as float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from assay.errors import RuntimeFolderError
from assay.runtime import release_freed_memory
from assay.verification.all_positions import (
    bypass_last_position,
    cut_to_values,
    keep_last_positions,
    set_accuracy_level,
)
from assay.verification.folder import CacheSlot, ModelFolder, open_folder

if TYPE_CHECKING:
    from pathlib import Path

    import onnx

__all__ = ["Candidate", "State", "open_candidate"]

Ids = npt.NDArray[np.int64]
Logits = npt.NDArray[np.float32]


@dataclass
class State:
    """Where a generation stands: caches by their past input's name, and the mask so far."""

    values: dict[str, Any]
    mask_BT: Ids


class Candidate:
    """A folder's graph, with a session that is opened on first use and can be put away.

    covers_all_positions: whether a run gives logits for each token fed (True) or for the last
    one only (False). bypassed: whether the graph was edited to do so.
    """

    def __init__(
        self,
        folder: ModelFolder,
        *,
        accuracy_level: int | None = None,
        all_positions: bool = True,
        last_positions: int | None = None,
        num_threads: int = 0,
    ) -> None:
        self.folder = folder
        self.num_threads = num_threads
        self.last_positions = last_positions
        self.accuracy_level = accuracy_level
        proto = folder.proto
        logits = folder.signature.logits
        cut = bypassed = None
        if last_positions is not None:
            cut = keep_last_positions(proto, logits, last_positions)
        if cut is None and all_positions:
            bypassed = bypass_last_position(proto, logits)
        self.bypassed = bypassed is not None
        proto = cut or bypassed or proto
        if accuracy_level is not None:
            proto = set_accuracy_level(proto, accuracy_level)
        self._proto = proto
        self._session: Any = None
        self._probed: tuple[tuple[str, ...], Any] | None = None
        self._outputs = [output.name for output in proto.graph.output]
        self.covers_all_positions = False
        self.covers_all_positions = all_positions and self._gives_all_positions()

    def _open(self, proto: onnx.ModelProto) -> Any:
        """A session; for the last positions alone one in little memory, whatever time it costs.

        Weights aren't laid out anew then, but for packed ones whose products aren't exact: without
        a layout of theirs they would be dequantized as a whole.
        """
        saves_memory = self.last_positions is not None
        keeps_layout = saves_memory and (not self.folder.is_quantized or self.accuracy_level == 0)
        return _open_session(
            self.folder,
            proto,
            self.num_threads,
            saves_memory=saves_memory,
            keeps_layout=keeps_layout,
        )

    def close(self) -> None:
        """Put the session and its memory away; the next run opens it again."""
        self._session = self._probed = None

    def as_shipped(self) -> Candidate:
        """The graph as it lies in the folder, last position only; closes this session first."""
        self.close()
        return Candidate(
            self.folder,
            accuracy_level=self.accuracy_level,
            all_positions=False,
            num_threads=self.num_threads,
        )

    def _gives_all_positions(self) -> bool:
        """Ask the graph itself: what is declared isn't always what comes out."""
        logits, _ = self.feed(self.start(), np.asarray([[1, 1]], np.int64))
        return bool(logits.shape[1] == 2)

    def start(self, num_rows: int = 1) -> State:
        """Empty caches (zeros of the window's length for ring caches) and an empty mask."""
        from onnxruntime import OrtValue

        values = {
            slot.past: OrtValue.ortvalue_from_numpy(_empty_cache(slot, num_rows))
            for slot in self.folder.signature.slots
        }
        return State(values, np.zeros((num_rows, 0), np.int64))

    def feed(self, state: State, ids_BS: Ids, mask_BS: Ids | None = None) -> tuple[Logits, State]:
        """Run new tokens on top of a state.

        mask_BS: 0 for padding, all ones when absent. Positions count unmasked tokens from 0;
        padding has position 0, as in onnxruntime-genai.
        Returns logits [B, S or 1, V] and the state after the tokens.
        """
        signature = self.folder.signature
        values, mask_BT = self._build_feeds(state, ids_BS, mask_BS)
        results = self._run(values)
        caches = {slot.past: results[slot.present] for slot in signature.slots}
        return _read_logits(results[signature.logits]), State(caches, mask_BT)

    @property
    def graph(self) -> onnx.ModelProto:
        """The graph as it is run: the folder's, with the edits in memory."""
        return self._proto

    def run_values(self, ids_S: Ids, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
        """Values inside the graph, by name, over one prompt.

        A session of its own: extra outputs keep the runtime from fusing across them.
        """
        if not names:  # which would ask the runtime for every output
            return {}
        found, _ = self._run_probed(self.start(), ids_S, names)
        return {name: np.asarray(found[name].numpy(), np.float32) for name in names}

    def feed_values(
        self, state: State, ids_S: Ids, names: Sequence[str]
    ) -> tuple[dict[str, npt.NDArray[Any]], State]:
        """Values inside the graph, and the state after the tokens; no logits are computed."""
        slots = self.folder.signature.slots
        found, mask_BT = self._run_probed(state, ids_S, (*names, *(s.present for s in slots)))
        values = {name: np.asarray(found[name].numpy(), np.float32) for name in names}
        return values, State({slot.past: found[slot.present] for slot in slots}, mask_BT)

    def _run_probed(
        self, state: State, ids_S: Ids, names: Sequence[str]
    ) -> tuple[dict[str, Any], Ids]:
        names = tuple(dict.fromkeys(names))
        session = self._open_probed(names)
        values, mask_BT = self._build_feeds(state, ids_S[None], None)
        try:
            results = session.run_with_ort_values(list(names), values)
        except Exception as exc:
            _reraise_runtime(exc, str(self.folder.graph_path), "ONNX Runtime can't run the graph")
            raise
        return dict(zip(names, results, strict=True)), mask_BT

    def _open_probed(self, names: tuple[str, ...]) -> Any:
        """A session that gives these values alone; the last one is kept, the main one isn't."""
        if self._probed is None or self._probed[0] != names:
            self.close()
            proto = cut_to_values(self._proto, names)
            self._probed = names, self._open(proto)
        return self._probed[1]

    def _build_feeds(
        self, state: State, ids_BS: Ids, mask_BS: Ids | None
    ) -> tuple[dict[str, Any], Ids]:
        """Every input of a run by its name, and the mask so far."""
        from onnxruntime import OrtValue

        signature = self.folder.signature
        new_mask_BS = np.ones_like(ids_BS) if mask_BS is None else mask_BS
        mask_BT = np.concatenate([state.mask_BT, new_mask_BS], axis=1)
        positions_BS = np.maximum(np.cumsum(mask_BT, axis=1) - 1, 0)[:, state.mask_BT.shape[1] :]
        feeds = {
            signature.input_ids: ids_BS,
            signature.attention_mask: mask_BT,
            signature.position_ids: positions_BS * new_mask_BS,
        }
        lengths = {"past": state.mask_BT.shape[1], "total": mask_BT.shape[1]}
        for name, role in signature.extras.items():
            feeds[name] = np.asarray([lengths[role]])
        values = {
            name: OrtValue.ortvalue_from_numpy(self._as_declared(name, array))
            for name, array in feeds.items()
            if name
        }
        return values | state.values, mask_BT

    def prefill(self, ids_S: Ids) -> Logits:
        """Logits [S, V] of every position of one prompt, or of the last_positions alone.

        In one run where the graph covers all positions, else token by token.
        """
        if self.covers_all_positions:
            logits_BSV, _ = self.feed(self.start(), ids_S[None])
            return np.asarray(logits_BSV[0])
        return self.decode(self.start(), ids_S)[0]

    def decode(self, state: State, ids_S: Ids) -> tuple[Logits, State]:
        """Feed tokens one by one through the cache; logits [S, V]."""
        rows = []
        for token in ids_S:
            logits, state = self.feed(state, np.asarray([[token]], np.int64))
            rows.append(logits[0, -1])
        return np.stack(rows), state

    def _as_declared(self, name: str, array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """Cast to the declared type; length scalars take the declared rank."""
        from onnx import helper

        signature = self.folder.signature
        if name in signature.extras:
            array = array.reshape((1,) * signature.ranks[name])
        dtype = helper.tensor_dtype_to_np_dtype(signature.element_types[name])
        return np.ascontiguousarray(array.astype(dtype))

    def _run(self, values: dict[str, Any]) -> dict[str, Any]:
        if self._session is None:
            self._session = self._open(self._proto)
        try:
            results = self._session.run_with_ort_values(self._outputs, values)
        except Exception as exc:
            _reraise_runtime(exc, str(self.folder.graph_path), "ONNX Runtime can't run the graph")
            raise
        return dict(zip(self._outputs, results, strict=True))


def open_candidate(
    folder: ModelFolder | str | Path,
    *,
    accuracy_level: int | None = None,
    all_positions: bool = True,
    last_positions: int | None = None,
    num_threads: int = 0,
) -> Candidate:
    """Load a folder's graph on the CPU.

    accuracy_level: forces MatMulNBits' arithmetic in memory; None keeps the folder's own.
    all_positions: bypass the node that keeps only the last position, where there is one.
    last_positions: let the head compute only so many, where its graph can be cut there.
    Raises RuntimeFolderError when ONNX Runtime refuses the graph or its weights.
    """
    opened = folder if isinstance(folder, ModelFolder) else open_folder(folder)
    return Candidate(
        opened,
        accuracy_level=accuracy_level,
        all_positions=all_positions,
        last_positions=last_positions,
        num_threads=num_threads,
    )


def _open_session(
    folder: ModelFolder,
    proto: onnx.ModelProto,
    num_threads: int,
    *,
    saves_memory: bool,
    keeps_layout: bool,
) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = num_threads
    if saves_memory:
        release_freed_memory()
        # An arena keeps the largest run's memory (a dequantized head) for as long as it lives.
        options.enable_cpu_mem_arena = False
    if keeps_layout:
        options.add_session_config_entry("session.disable_prepacking", "1")
    # Weights stay in the folder; only the graph itself is handed over as bytes.
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", str(folder.path.resolve())
    )
    try:
        return onnxruntime.InferenceSession(
            proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as exc:
        _reraise_runtime(exc, str(folder.graph_path), "ONNX Runtime can't load the graph")
        raise


def _reraise_runtime(exc: Exception, where: str, what: str) -> None:
    """Turn ONNX Runtime's own exceptions, which share no public base, into ours."""
    if type(exc).__module__.startswith("onnxruntime"):
        raise RuntimeFolderError(
            where, f"{what}: {exc}", next_step="Export the model again, or report it to its tool."
        ) from exc


def _empty_cache(slot: CacheSlot, num_rows: int) -> npt.NDArray[np.generic]:
    """Zeros for one slot: batch first, the token axis (2 of 4, else none) empty or the ring's."""
    from onnx import helper

    dims = [num_rows]
    for axis, dim in enumerate(slot.shape[1:], start=1):
        if dim is not None and not (axis == 2 and slot.capacity):
            dims.append(dim)
        elif axis == 2 or len(slot.shape) != 4:
            dims.append(slot.capacity)
        else:
            raise RuntimeFolderError(
                slot.past,
                f"axis {axis} of this cache has no size",
                expected="num_key_value_heads and head_size in genai_config.json",
            )
    return np.zeros(dims, helper.tensor_dtype_to_np_dtype(slot.element_type))


def _read_logits(value: Any) -> Logits:
    logits = np.asarray(value.numpy(), np.float32)
    return logits[:, None] if logits.ndim == 2 else logits
