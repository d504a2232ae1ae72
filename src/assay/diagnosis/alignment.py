"""What each part of a graph is: its stored matrices by value, and from them the layers' streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from assay.diagnosis.encodings import list_codes
from assay.diagnosis.graph_map import GraphMap, Separator
from assay.diagnosis.hypothesis import list_layers
from assay.diagnosis.matching import ParameterIndex
from assay.verification.candidate import Candidate
from assay.verification.folder import ModelFolder
from assay.verification.packed_nodes import find_packed_tensors
from assay.verification.qdq import is_transposed
from assay.verification.weight_match import MatchedRows, Parameters, match_by_manifest
from assay.verification.weights import PackedTensor, decode_rows, read_initializer

if TYPE_CHECKING:
    import torch

__all__ = ["Alignment", "StoredMatrix", "untie"]

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
_TABLES = frozenset({"GroupQueryAttention", "RotaryEmbedding"})
_PRODUCTS = frozenset({"MatMul", "Gemm", "Transpose"})


_BLOCK_ELEMENTS = 1 << 21


@dataclass(frozen=True)
class StoredMatrix:
    """A matrix that the graph reads.

    stretches: of the graph where it is read. transposed: it lies as [K, N]. matched: the
    checkpoint rows it holds, none where it is like no weight. packed: codes, scales, zero points.
    """

    name: str
    stretches: tuple[int, ...]
    matched: tuple[MatchedRows, ...]
    transposed: bool
    packed: PackedTensor | None = None

    def read_blocks(self, folder: ModelFolder) -> Iterator[tuple[slice, Floats]]:
        """The matrix [N, K] in float32, decoded, some rows at a time."""
        if self.packed is not None:
            for part, rows in decode_rows(folder, self.packed):
                yield part, rows.weight_NK
            return
        matrix = self._view(folder)
        step = max(1, _BLOCK_ELEMENTS // matrix.shape[1])
        for start in range(0, len(matrix), step):
            block = slice(start, min(start + step, len(matrix)))
            yield block, np.asarray(matrix[block], np.float32)

    def read_matched(
        self, folder: ModelFolder
    ) -> Iterator[tuple[int, npt.NDArray[np.int64], Floats]]:
        """What it holds of the checkpoint, some rows at a time.

        Yields the place in `matched`, the rows of that parameter, and the values [R, K] for them.
        """
        for block, values_NK in self.read_blocks(folder):
            for place, rows in enumerate(self.matched):
                first = max(block.start, rows.start)
                last = min(block.stop, rows.start + len(rows.rows_R))
                if first < last:
                    index_R = rows.rows_R[first - rows.start : last - rows.start]
                    yield place, index_R, values_NK[first - block.start : last - block.start]

    def read(self, folder: ModelFolder) -> Floats:
        """The whole matrix [N, K] in float32, decoded."""
        if self.packed is not None:
            blocks = [rows.weight_NK for _, rows in decode_rows(folder, self.packed)]
            return np.concatenate(blocks)
        return np.asarray(self._view(folder), np.float32)

    def _view(self, folder: ModelFolder) -> npt.NDArray[Any]:
        """The matrix [N, K] of floats as the file has it, mapped."""
        stored = read_initializer(folder, self.name)
        matrix = stored.reshape(-1, stored.shape[-1])
        return matrix.T if self.transposed else matrix


class Alignment:
    """A candidate's graph laid beside the reference.

    streams: the separators whose value enters the first layer and leaves each, L + 1; empty where
    they can't be told. order: for each place in the graph, the layer whose weights lie there.
    transposed: weights that the reference keeps as [inputs, outputs].
    """

    def __init__(self, candidate: Candidate, model: torch.nn.Module) -> None:
        self.folder = candidate.folder
        signature = self.folder.signature
        self.graph = GraphMap(candidate.graph, signature.input_ids, signature.logits)
        self.layers = [path for path, _ in list_layers(model)]
        self._ends = _find_tied(model)
        self.parameters = Parameters(model)
        self.transposed = _list_transposed(model)
        self._index = ParameterIndex(
            self.parameters,
            num_experts=_count_experts(model),
            transposed=self.transposed,
            skip=self._ends[1:],
        )
        self.vectors: dict[str, Floats] = {
            name: parameter.detach().cpu().numpy().astype(np.float32)
            for name, parameter in model.named_parameters()
            if parameter.ndim == 1 and len(parameter) > 1
        }
        self.matrices = list(self._match())
        if self._ends and not self._has_two_tables():
            self._ends = ()
        elif self._ends:
            untie(model)
        self.order, self.streams = self._place_layers()

    def _has_two_tables(self) -> bool:
        """Whether the graph stores what the reference has once as two matrices."""
        tables = [m for m in self.matrices if any(r.parameter in self._ends for r in m.matched)]
        return len({self._find_storage(table) for table in tables}) > 1

    def _find_storage(self, matrix: StoredMatrix) -> tuple[str, ...]:
        """Where a matrix's numbers lie: two names may stand for the same bytes of a data file."""
        packed = matrix.packed
        parts = [matrix.name] if packed is None else [packed.packed, packed.scales]
        found = []
        for name in parts:
            proto = self.folder.initializers.get(name)
            entries = {} if proto is None else {e.key: e.value for e in proto.external_data}
            place = (entries.get("location", ""), entries.get("offset", "0"))
            found.append(f"{place[0]}:{place[1]}" if entries else name)
        return tuple(found)

    def measure_matched(self, matrix: StoredMatrix) -> tuple[Doubles, Doubles]:
        """Squared L2 norms of what each entry of `matched` differs by, and of the checkpoint's."""
        error_M, norm_M = np.zeros((2, len(matrix.matched)))
        for place, index_R, values_RK in matrix.read_matched(self.folder):
            rows = matrix.matched[place]
            original_RK = self.parameters.read(
                rows.parameter, index_R, transposed=rows.transposed
            ).astype(np.float64)
            error_M[place] += np.square(values_RK - original_RK).sum()
            norm_M[place] += np.square(original_RK).sum()
        return error_M, norm_M

    @property
    def stream_names(self) -> list[str]:
        """The values that the streams are made of, those that the graph computes."""
        names = [name for separator in self.streams for name in separator.values]
        return [name for name in names if name not in self.folder.initializers]

    def read_streams(
        self, candidate: Candidate, ids_S: npt.NDArray[np.int64]
    ) -> tuple[Floats, ...]:
        """The streams [S, H] that the candidate computes."""
        return self.add_streams(candidate.run_values(ids_S, self.stream_names))

    def add_streams(self, values: dict[str, npt.NDArray[Any]]) -> tuple[Floats, ...]:
        """The streams [S, H] from the values that they are made of."""
        return tuple(
            np.sum(
                [
                    values[n][0] if n in values else read_initializer(self.folder, n)
                    for n in separator.values
                ],
                axis=0,
                dtype=np.float32,
            )
            for separator in self.streams
        )

    def find_layer(self, stretch: int) -> int | None:
        """The layer in which a stretch of the graph lies; None outside of layers."""
        position = self._cut(stretch)
        for number, (start, stop) in enumerate(zip(self.streams, self.streams[1:], strict=False)):
            if start.position < position <= stop.position:
                return self.order[number]
        return None

    def list_roles(self, matrix: StoredMatrix, parameter: str) -> list[str]:
        """The parameters that a matrix stands for: embedding, head or both where they are tied."""
        if parameter not in self._ends or not self.streams:
            return [parameter]
        embedding, head = self._ends
        cuts = [self._cut(stretch) for stretch in matrix.stretches]
        first, last = self.streams[0].position, self.streams[-1].position
        roles = [embedding] if any(cut <= first for cut in cuts) else []
        return roles + ([head] if any(cut > last for cut in cuts) else [])

    def _cut(self, stretch: int) -> int:
        """The position of the separator that ends a stretch."""
        separators = self.graph.separators
        return separators[min(stretch, len(separators) - 1)].position

    def _match(self) -> Iterator[StoredMatrix]:
        uses: dict[str, list[int]] = {}
        for use in self.graph.weight_uses:
            if use.op_type in _TABLES:  # of cos and sin
                continue
            uses.setdefault(use.initializer, []).append(use.stretch)
        packed = {tensor.packed: tensor for tensor in find_packed_tensors(self.folder)}
        beside = {n for t in packed.values() for n in (t.scales, t.zero_points, t.group_index)}
        for name, stretches in uses.items():
            where = tuple(dict.fromkeys(stretches))
            if name in packed:
                yield self._match_packed(packed[name], where)
            elif name not in beside and _is_matrix(self.folder, name):
                matrix = self._match_float(name, where)
                # Tables and masks are no weights, and read in more than one place.
                if matrix.matched or len(where) == 1:
                    yield matrix

    def _match_float(self, name: str, stretches: tuple[int, ...]) -> StoredMatrix:
        stored = np.asarray(read_initializer(self.folder, name), np.float32)
        matrix = stored.reshape(-1, stored.shape[-1])
        orders = self._tell_orders(name) if stored.ndim == 2 else (False,)
        for transposed in orders:
            found = self._index.match(matrix.T if transposed else matrix)
            if found:
                return StoredMatrix(name, stretches, tuple(found), transposed)
        return StoredMatrix(name, stretches, (), orders[0])

    def _tell_orders(self, name: str) -> tuple[bool, ...]:
        """Whether a matrix lies as [K, N], as its operator reads it; both where none tells."""
        if any(node.op_type == "Gather" and node.input[0] == name for node in self.graph.nodes):
            return (False,)
        if any(name in node.input for node in self.graph.nodes if node.op_type in _PRODUCTS):
            return (is_transposed(self.folder, name),)
        return (True, False)

    def _match_packed(self, tensor: PackedTensor, stretches: tuple[int, ...]) -> StoredMatrix:
        found = self._index.match(_PackedRows(self.folder, tensor))
        if not found:  # wrong scales or zero points; the codes may still tell
            for reading in list_codes(np.zeros((1, 2), np.uint8), tensor.bits):
                rows = _PackedRows(self.folder, tensor, reading)
                found = found or self._index.match(rows, tensor.group_size)
        if not found:  # codes that decode to nothing known: what the writer says they are
            entries = (self.folder.manifest or {}).get("weights", {}).values()
            for entry in entries:
                if entry.get("initializers", {}).get("packed") == tensor.packed:
                    found = match_by_manifest(entry, tensor, self.parameters) or []
        return StoredMatrix(tensor.packed, stretches, tuple(found), False, tensor)

    def _place_layers(self) -> tuple[list[int], list[Separator]]:
        votes: dict[int, Counter[int]] = {}
        for matrix in self.matrices:
            for stretch in matrix.stretches:
                for rows in matrix.matched:
                    if (layer := self.layer_of(rows.parameter)) is not None:
                        votes.setdefault(stretch, Counter())[layer] += 1
        runs: list[list[int]] = []  # layer, first stretch, last stretch
        for stretch in sorted(votes):
            layer = votes[stretch].most_common(1)[0][0]
            if runs and runs[-1][0] == layer:
                runs[-1][2] = stretch
            else:
                runs.append([layer, stretch, stretch])
        separators = self.graph.separators
        order = [layer for layer, _, _ in runs]
        if not runs or len(set(order)) != len(order):
            return [], []
        if runs[0][1] == 0 or runs[-1][2] >= len(separators):
            return [], []
        streams = [separators[runs[0][1] - 1], *(separators[last] for _, _, last in runs)]
        for layer in range(len(self.layers)):  # one that the graph hasn't changes nothing
            if layer not in order:
                place = sum(other < layer for other in order)
                order.insert(place, layer)
                streams.insert(place + 1, streams[place])
        return order, streams

    def layer_of(self, parameter: str) -> int | None:
        """The layer that a parameter of the reference belongs to; None outside of layers."""
        for number, path in enumerate(self.layers):
            if parameter.startswith(f"{path}."):
                return number
        return None


class _PackedRows:
    """A packed matrix that decodes the rows it is asked for; with a reading, their codes."""

    def __init__(
        self, folder: ModelFolder, tensor: PackedTensor, reading: str | None = None
    ) -> None:
        self.folder, self.tensor, self.reading = folder, tensor, reading
        self.shape = (tensor.num_rows, tensor.num_inputs)

    def __len__(self) -> int:
        return self.tensor.num_rows

    def __getitem__(self, rows: npt.NDArray[np.int64]) -> Floats:
        found = [self._read(int(row)) for row in rows]
        return np.asarray(np.concatenate(found), np.float32)

    def _read(self, row: int) -> npt.NDArray[Any]:
        ((_, part),) = decode_rows(self.folder, self.tensor, rows=slice(row, row + 1))
        if self.reading is None:
            return part.weight_NK
        return list_codes(part.codes_NK, self.tensor.bits)[self.reading]


def _is_matrix(folder: ModelFolder, name: str) -> bool:
    from onnx import TensorProto

    proto = folder.initializers[name]
    kinds = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
    return len(proto.dims) in (2, 3) and proto.data_type in kinds and min(proto.dims) > 1


def _list_transposed(model: torch.nn.Module) -> set[str]:
    """Weights that the reference keeps as [inputs, outputs]."""
    return {
        f"{name}.weight"
        for name, module in model.named_modules()
        if type(module).__name__ == "Conv1D"
    }


def _count_experts(model: torch.nn.Module) -> int:
    text = model.config.get_text_config()  # type: ignore[union-attr,operator]
    names = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
    return next((n for name in names if isinstance(n := getattr(text, name, None), int)), 0)


def _find_tied(model: torch.nn.Module) -> tuple[str, ...]:
    """The embedding's and the head's parameters where they are one; none where they aren't."""
    embedding: Any = model.get_input_embeddings()  # type: ignore[operator]
    head: Any = model.get_output_embeddings()  # type: ignore[operator]
    if head is None or head.weight is not embedding.weight:
        return ()
    paths = {id(module): name for name, module in model.named_modules()}
    return f"{paths[id(embedding)]}.weight", f"{paths[id(head)]}.weight"


def untie(model: torch.nn.Module) -> None:
    """Give a tied head a copy of its weight."""
    import torch

    embedding: Any = model.get_input_embeddings()  # type: ignore[operator]
    head: Any = model.get_output_embeddings()  # type: ignore[operator]
    head.weight = torch.nn.Parameter(embedding.weight.detach().clone(), requires_grad=False)
