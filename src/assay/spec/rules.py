"""Named rules that more than one model's spec uses."""

from __future__ import annotations

from typing import Any

from assay.errors import ConfigError
from assay.spec.kinds import check_number
from assay.spec.markers import Derived, Key, key, or_else, rule, when
from assay.spec.resolve import Context

__all__ = [
    "HEADS",
    "HEAD_DIM",
    "HIDDEN_PER_HEAD",
    "KV_HEADS",
    "every_layer_slides",
    "every_nth_is_full",
    "inverse_sqrt",
    "layer_types_or",
    "reciprocal",
    "renamed",
    "size",
    "size_or_null",
    "sqrt",
    "window_from_layer",
    "window_if_used",
]


def size(name: str) -> Any:
    """A count from the config: an integer of at least 1."""

    def read_size(context: Context) -> int:
        return context.config.get_size(name)

    read_size.__name__ = name
    return rule(read_size)


def size_or_null(name: str) -> Any:
    """A count from the config, or None where the file says null."""

    def read_size(context: Context) -> int | None:
        config = context.config
        return None if config.get(name) is None else config.get_size(name)

    read_size.__name__ = name
    return rule(read_size)


def _hidden_per_head(context: Context) -> int:
    hidden, heads = (
        context.config.get_size("hidden_size"),
        context.config.get_size("num_attention_heads"),
    )
    if hidden % heads:
        raise ConfigError(
            context.config.where, f"hidden_size {hidden} doesn't divide by {heads} heads"
        )
    return hidden // heads


HIDDEN_PER_HEAD = rule(_hidden_per_head)
HEADS = size("num_attention_heads")
# transformers reads head_dim with getattr, so a config may set it where the class has no field.
HEAD_DIM = or_else(size_or_null("head_dim"), HIDDEN_PER_HEAD)
KV_HEADS = or_else(size_or_null("num_key_value_heads"), HEADS)


def _read_number(context: Context, value: Any, *, above_zero: bool = False) -> float:
    name = value.name if isinstance(value, Key | Derived) else "a number"
    return check_number(context.resolve(value), context.where, name, above_zero=above_zero)


def inverse_sqrt(value: Any) -> Any:
    """value ** -0.5"""

    def inverse_square_root(context: Context) -> float:
        return float(_read_number(context, value, above_zero=True) ** -0.5)

    return rule(inverse_square_root)


def sqrt(value: Any) -> Any:
    """value ** 0.5"""

    def square_root(context: Context) -> float:
        return float(_read_number(context, value, above_zero=True) ** 0.5)

    return rule(square_root)


def reciprocal(value: Any) -> Any:
    """1 / value, for multipliers that transformers divides by."""

    def one_over(context: Context) -> float:
        return 1.0 / _read_number(context, value, above_zero=True)

    return rule(one_over)


def layer_types_or(default: Any) -> Any:
    """config.layer_types where the file lists them, else the model's own rule."""

    def layer_types(context: Context) -> tuple[str, ...]:
        listed = context.config.get("layer_types", None)
        if listed is None:
            return tuple(context.resolve(default))
        if not isinstance(listed, list):
            raise ConfigError(
                context.config.where, f"layer_types is {listed!r}", expected="a list of texts"
            )
        return tuple(listed)

    return rule(layer_types)


def renamed(name: str, **meant: Any) -> Any:
    """A config value with spellings of this model replaced by what they mean."""

    def read_renamed(context: Context) -> Any:
        value = context.config.get(name)
        return meant.get(value, value) if isinstance(value, str) else value

    return rule(read_renamed)


def every_nth_is_full(n: Any) -> Any:
    """n - 1 sliding layers, then a full one, again and again."""

    def pattern(context: Context) -> tuple[str, ...]:
        period = int(_read_number(context, n, above_zero=True))
        return tuple(
            "full_attention" if (index + 1) % period == 0 else "sliding_attention"
            for index in range(context.config.get_size("num_hidden_layers"))
        )

    return rule(pattern)


def _every_layer_slides(context: Context) -> tuple[str, ...]:
    return ("sliding_attention",) * context.config.get_size("num_hidden_layers")


every_layer_slides = rule(_every_layer_slides)


def _window_from_layer(context: Context) -> tuple[str, ...]:
    """`sliding_attention` from layer max_window_layers on, if use_sliding_window."""
    config = context.config
    layers = config.get_size("num_hidden_layers")
    first = _read_number(context, key("max_window_layers"))
    used = config.get_flag("use_sliding_window") and config.get("sliding_window") is not None
    return tuple(
        "sliding_attention" if used and index >= first else "full_attention"
        for index in range(layers)
    )


window_from_layer = rule(_window_from_layer)
window_if_used = when(key("use_sliding_window"), key("sliding_window"), None)
