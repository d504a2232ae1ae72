"""MoESpec: what is known about the mixture of experts of one model type, as frozen data."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from assay.spec.experts import Experts, HashRouter, MlpRouter, Router, SharedExpert, SparseMixer
from assay.spec.vocabulary import Norm

__all__ = [
    "FUSED",
    "FUSED_TRANSPOSED",
    "ITERABLE",
    "ExpertFiles",
    "ExpertLayout",
    "MoESpec",
    "SparseLayers",
    "class_names",
]


@dataclass(frozen=True, kw_only=True)
class ExpertLayout:
    """How the experts of a block, or of a file, lie.

    kind: `iterable` is one module an expert; `fused` is parameters [experts, ., .]; `flat` is
    parameters [experts * width, .]; `by_projection` is, for each projection, one linear an expert.
    The flags are transformers 5's, and None where nothing says them. is_transposed: weights are
    [in, out]. is_concatenated: gate and up are one tensor, the gate's rows first (False: gate
    and up rows alternate).
    """

    kind: Literal["iterable", "fused", "flat", "by_projection"]
    is_transposed: bool | None = False
    is_concatenated: bool | None = None
    has_bias: bool = False
    has_gate: bool = True


ITERABLE = ExpertLayout(kind="iterable")
FUSED = ExpertLayout(kind="fused", is_concatenated=True)
FUSED_TRANSPOSED = ExpertLayout(kind="fused", is_concatenated=True, is_transposed=True)


@dataclass(frozen=True, kw_only=True)
class ExpertFiles:
    """One published form of the experts' tensors; names are relative to the layer.

    gate_up: one name where packed, else gate and up; without a gate, up alone. `{expert}` stands
    where an expert has its own tensor. layout: as in ExpertLayout (`iterable`: one tensor an
    expert). renames: (module name, name in files), both relative to the layer, for the block's
    other tensors where the two differ. second: the form of a block's second experts; None where
    there are none, or where one list holds both, the second ones numbered after the first.
    """

    gate_up: tuple[str, ...]
    down: str
    layout: ExpertLayout = ITERABLE
    renames: tuple[tuple[str, str], ...] = ()
    second: ExpertFiles | None = None


@dataclass(frozen=True, kw_only=True)
class SparseLayers:
    """Which layers have experts; conditions that are given must all hold.

    types_key: a config list with a type a layer, `types` those with experts; where the file lacks
    the list, the other conditions say it. first_dense_key: layers from that number on.
    first_dense: the same, as a number. listed_key: a list of layers with experts; dense_key: a
    list of layers without. step_key: (i + 1) divides by it. period_key, offset_key: i % period ==
    offset. start_key, end_key: the first and the last layer (end -1: the model's last).
    switch_key: a boolean; false means no layer has.
    """

    types_key: str | None = None
    types: tuple[str, ...] = ("sparse",)
    first_dense_key: str | None = None
    first_dense: int = 0
    listed_key: str | None = None
    dense_key: str | None = None
    step_key: str | None = None
    period_key: str | None = None
    offset_key: str | None = None
    start_key: str | None = None
    end_key: str | None = None
    switch_key: str | None = None

    def find(self, config: Mapping[str, Any], num_layers: int) -> tuple[int, ...]:
        """Return the numbers of the layers with experts; config is the text decoder's."""
        return tuple(i for i in range(num_layers) if self._has(config, i, num_layers))

    def _has(self, config: Mapping[str, Any], layer: int, num_layers: int) -> bool:
        if self.switch_key is not None and not config.get(self.switch_key):
            return False
        if self.types_key is not None and config.get(self.types_key):
            return config[self.types_key][layer] in self.types
        if self.listed_key is not None and config.get(self.listed_key) is not None:
            return layer in config[self.listed_key]
        if self.dense_key is not None and layer in (config.get(self.dense_key) or ()):
            return False
        if self.step_key is not None and (layer + 1) % (config.get(self.step_key) or 1):
            return False
        if self.period_key is not None and self.offset_key is not None:
            period, offset = config.get(self.period_key, 1), config.get(self.offset_key, 0)
            if layer % period != offset:
                return False
        first = config.get(self.first_dense_key) if self.first_dense_key is not None else None
        if layer < (self.first_dense if first is None else first):
            return False
        return self._is_between(config, layer, num_layers)

    def _is_between(self, config: Mapping[str, Any], layer: int, num_layers: int) -> bool:
        start = config.get(self.start_key, 0) if self.start_key is not None else 0
        end = config.get(self.end_key, -1) if self.end_key is not None else -1
        return bool(start <= layer <= (num_layers - 1 if end == -1 else end))


@dataclass(frozen=True, kw_only=True)
class MoESpec:
    """The mixture of experts of one model type.

    block_names: classes of the block (router and experts), in any release. Several may share a
    layout. needs: a child without which an instance is no block, where its class also serves dense
    layers. expert_linear_names: the experts' linears (or fused parameters) in the spec's own
    layout, the one of the oldest release: `layouts[0]`. gate_up_pair: the linears that engines
    fuse, gate first; None where there is no such pair. layouts: (release since which, layout),
    oldest first; "remote_code" for code that comes with the checkpoint. unsupported: why lists of
    experts can't be given; None where they can.
    router, experts, shared, sparse_layers, output_norm (over routed and shared together): what
    the block computes. second_experts: experts beside those, for tokens of another kind.
    files: the published forms of the tensors, tried in order.
    """

    block_names: tuple[str, ...]
    expert_linear_names: tuple[str, ...]
    gate_up_pair: tuple[str, str] | None
    layouts: tuple[tuple[str, ExpertLayout], ...]
    router: Router | MlpRouter | HashRouter | SparseMixer
    experts: Experts
    files: tuple[ExpertFiles, ...]
    shared: SharedExpert | None = None
    second_experts: Experts | None = None
    sparse_layers: SparseLayers = SparseLayers()
    output_norm: Norm | None = None
    needs: str | None = None
    unsupported: str | None = None

    @property
    def layout(self) -> ExpertLayout:
        """The spec's own layout."""
        return self.layouts[0][1]

    @property
    def fused(self) -> bool:
        """Whether experts are fused 3-D parameters in the spec's own layout."""
        return self.layout.kind == "fused"

    def matches(self, module: object) -> bool:
        """Whether a class in the module's MRO has one of the block names, in any letter case.

        Names are compared whole, so that a quantized subclass matches through its base class and
        nothing matches by a part of its name.
        """
        return self.find_distance(module) is not None

    def find_distance(self, module: object) -> int | None:
        """Return how far up the module's MRO the block stands (0 is its own class), else None."""
        if self.needs is not None and getattr(module, self.needs, None) is None:
            return None
        places = (i for i, name in enumerate(class_names(module)) if name in self._lower_names)
        return next(places, None)

    @functools.cached_property
    def _lower_names(self) -> frozenset[str]:
        return frozenset(name.lower() for name in self.block_names)


def class_names(module: object) -> tuple[str, ...]:
    """Lower-case names of the classes in a module's MRO, its own first."""
    return tuple(cls.__name__.lower() for cls in type(module).__mro__)
