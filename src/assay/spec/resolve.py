"""From a spec and a config to the decoder of one checkpoint: every marker replaced by its value."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar, cast

from assay.errors import ConfigError
from assay.spec.config import ModelConfig
from assay.spec.kinds import check_facts
from assay.spec.markers import ByLayer, ByLayerType, Derived, Key, Marker, OrElse, When
from assay.spec.vocabulary import (
    Attention,
    Decoder,
    DecoderPlan,
    FusedQkv,
    Layer,
    walk_mixers,
)

__all__ = ["Context", "resolve_decoder"]

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Context:
    """What a marker may look at: the config, and inside a layer its index and type."""

    config: ModelConfig
    layer_index: int | None = None
    layer_type: str | None = None

    def resolve(self, value: Any) -> Any:
        """Replace the markers in a value, a tuple or a dataclass, however deep they stand."""
        if isinstance(value, Marker):
            return self.resolve(self._evaluate(value))
        if isinstance(value, tuple):
            return tuple(self.resolve(item) for item in value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            changes = {
                field.name: self.resolve(getattr(value, field.name))
                for field in dataclasses.fields(value)
            }
            part = dataclasses.replace(value, **changes)
            check_facts(part, self.where, _find_keys(value))
            return part
        return value

    @property
    def where(self) -> str:
        """The config file, and inside a layer its number, for errors."""
        if self.layer_index is None:
            return self.config.where
        return f"{self.config.where}, layer {self.layer_index}"

    def _evaluate(self, marker: Marker) -> Any:
        if isinstance(marker, Key):
            return self.config.get(marker.name)
        if isinstance(marker, OrElse):
            first = self.resolve(marker.first)
            return marker.second if first is None else first
        if isinstance(marker, When):
            return marker.then if self._decide(marker.condition) else marker.otherwise
        if isinstance(marker, ByLayerType):
            return self._choose_by_type(dict(marker.values))
        if isinstance(marker, ByLayer):
            assert self.layer_index is not None
            return self.resolve(marker.values)[self.layer_index]
        assert isinstance(marker, Derived), marker
        return marker.function(self)

    def _decide(self, condition: Any) -> bool:
        """A condition is a boolean of the config; null counts as false."""
        value = self.resolve(condition)
        if value is not None and not isinstance(value, bool):
            name = condition.name if isinstance(condition, Key) else "a switch"
            raise ConfigError(self.where, f"{name} is {value!r}", expected="true or false")
        return bool(value)

    def _choose_by_type(self, values: dict[str, Any]) -> Any:
        if self.layer_type not in values:
            raise ConfigError(
                self.config.where,
                f"layer {self.layer_index} has the layer type {self.layer_type!r}",
                expected=f"one of {', '.join(values)}",
            )
        return values[self.layer_type]


def resolve_decoder(decoder: Decoder, config: ModelConfig) -> DecoderPlan:
    """Resolve a decoder's spec against a config.

    Raises ConfigError where a value is missing, of the wrong kind, or contradicts another.
    """
    context = Context(config)
    num_layers = _resolve_as(context, decoder.num_layers)
    layer_types = _resolve_as(context, decoder.layer_types)
    if layer_types is not None and len(layer_types) != num_layers:
        raise ConfigError(
            config.where,
            f"layer_types has {len(layer_types)} entries for {num_layers} layers",
            expected="one entry a layer",
        )
    layers = []
    for index in range(num_layers):
        layer_type = layer_types[index] if layer_types is not None else None
        layer = _resolve_as(Context(config, index, layer_type), decoder.layer)
        _check_layer(layer, config, index)
        layers.append(layer)
    return DecoderPlan(
        vocab_size=_resolve_as(context, decoder.vocab_size),
        hidden_size=_resolve_as(context, decoder.hidden_size),
        max_position_embeddings=_resolve_as(context, decoder.max_position_embeddings),
        embedding=_resolve_as(context, decoder.embedding),
        layers_name=decoder.layers_name,
        layers=tuple(layers),
        final_norm=_resolve_as(context, decoder.final_norm),
        head=_resolve_as(context, decoder.head),
    )


def _find_keys(part: Any) -> dict[str, str]:
    """Fields of a spec's part that stand for a config key as it is."""
    values = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    return {name: value.name for name, value in values.items() if isinstance(value, Key)}


def _resolve_as(context: Context, value: T) -> T:
    return cast(T, context.resolve(value))


def _check_layer(layer: Layer, config: ModelConfig, index: int) -> None:
    for mixer in walk_mixers(layer.branches):
        if isinstance(mixer, Attention):
            _check_attention(mixer, config, index)


def _check_attention(attention: Attention, config: ModelConfig, index: int) -> None:
    where = f"{config.where}, layer {index}"
    heads, kv_heads = attention.num_heads, attention.num_kv_heads
    if heads % kv_heads:
        raise ConfigError(
            where, f"{heads} attention heads can't share {kv_heads} key/value heads evenly"
        )
    if isinstance(attention.qkv, FusedQkv) and attention.qkv.rows == "per_head":
        assert heads == kv_heads, "per_head rows need as many kv heads as heads"
    rope = attention.rope
    if rope is not None and (rope.dim % 2 or not 0 < rope.dim <= attention.head_dim):
        raise ConfigError(
            where,
            f"{rope.dim} of {attention.head_dim} channels rotate",
            expected="an even number, at most head_dim",
        )
