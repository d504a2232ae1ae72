"""How a config says its rotary embedding, in every spelling that transformers reads.

New files nest everything in `rope_parameters` (by layer type where types differ); older ones
have `rope_theta`, `rope_scaling` and `partial_rotary_factor` at the top. Semantics are those of
transformers 5.24 `modeling_rope_utils.py` (convert_rope_params_to_dict, standardize_rope_params).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.errors import ConfigError
from assay.spec.kinds import check_number
from assay.spec.markers import rule
from assay.spec.resolve import Context
from assay.spec.vocabulary import Rope

__all__ = ["rope_from_config"]

KINDS = ("default", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional")
_HAS_ORIGINAL_LENGTH = ("llama3", "yarn", "longrope")
_REQUIRED: Mapping[str, tuple[str, ...]] = {
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor",),
    "longrope": ("short_factor", "long_factor"),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
}
_OPTIONAL: Mapping[str, tuple[str, ...]] = {
    "yarn": ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"),
    "longrope": ("factor", "attention_factor"),
    "proportional": ("factor",),
}
_STRUCTURE = (
    "rope_type",
    "type",
    "rope_theta",
    "partial_rotary_factor",
    "original_max_position_embeddings",
)


def rope_from_config(
    *,
    head_dim: Any,
    theta_keys: tuple[str, ...] = ("rope_theta",),
    default_theta: float = 10000.0,
    fraction_keys: tuple[str, ...] = (),
    default_fraction: float = 1.0,
    takes_scaling: bool = True,
    pairing: str = "halves",
    kind_names: tuple[tuple[str, str], ...] = (),
) -> Any:
    """A marker for the `Rope` that the config describes.

    theta_keys, fraction_keys: where older files hold the base and the rotated fraction; the
    first that is there counts.
    takes_scaling: False where a legacy top-level rope_scaling isn't meant for these layers.
    kind_names: rope_type spellings of this model, (as written, as meant).
    """

    def rope(context: Context) -> Rope:
        config = context.config
        given = _find_parameters(context, takes_scaling)
        kind = given.get("rope_type") or given.get("type") or "default"
        if not isinstance(kind, str):
            raise ConfigError(config.where, f"rope_type is {kind!r}", expected="a text")
        kind = dict(kind_names).get(kind, kind)
        thetas = [config.get(name, None) for name in theta_keys]
        theta = _first(given.get("rope_theta"), *thetas, default_theta)
        fractions = [config.get(name, None) for name in fraction_keys]
        fraction = _first(given.get("partial_rotary_factor"), *fractions, default_fraction)
        return _build(
            context,
            kind,
            given,
            check_number(theta, context.where, "rope_theta", above_zero=True),
            check_number(fraction, context.where, "partial_rotary_factor", above_zero=True),
            context.resolve(head_dim),
            pairing,
        )

    return rule(rope)


def _first(*values: Any) -> Any:
    return next(value for value in values if value is not None)


def _find_parameters(context: Context, takes_scaling: bool) -> dict[str, Any]:
    """Return the layer's own rope dictionary; {} where the config has none."""
    config = context.config
    legacy = config.get("rope_scaling", None)
    given = config.get("rope_parameters", None)
    if legacy is not None and given is not None and legacy != given:
        raise ConfigError(
            config.where,
            "rope_scaling and rope_parameters are both given, and differ",
            next_step="Keep the one that the model was trained with.",
        )
    if given is None:
        given = legacy if takes_scaling else None
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ConfigError(config.where, f"rope parameters are {given!r}", expected="an object")
    nested = [name for name, value in given.items() if isinstance(value, Mapping)]
    if nested:
        given = given.get(context.layer_type or "", None) or {}
    return dict(given)


def _build(
    context: Context,
    kind: str,
    given: dict[str, Any],
    theta: float,
    fraction: float,
    head_dim: int,
    pairing: str,
) -> Rope:
    config = context.config
    if kind not in KINDS:
        raise ConfigError(
            config.where, f"rope_type {kind!r} is unknown", expected=f"one of {', '.join(KINDS)}"
        )
    used = (*_REQUIRED.get(kind, ()), *_OPTIONAL.get(kind, ()))
    missing = [name for name in _REQUIRED.get(kind, ()) if given.get(name) is None]
    if missing:
        raise ConfigError(config.where, f"rope_type {kind!r} needs {', '.join(missing)}")
    unread = [
        name
        for name in given
        if name not in used and name not in _STRUCTURE and given[name] is not None
    ]
    if unread and kind != "default":
        raise ConfigError(
            config.where,
            f"rope_type {kind!r} has no use for {', '.join(unread)}",
            next_step="Check the rope parameters against the model's publication.",
        )
    facts = {name: given[name] for name in used if given.get(name) is not None}
    for name in ("short_factor", "long_factor"):
        if name in facts:
            facts[name] = _read_factors(context, name, facts[name])
    longest = config.get_size("max_position_embeddings")
    dim = head_dim if kind == "proportional" else int(head_dim * fraction)
    rope = Rope(
        kind=kind,  # type: ignore[arg-type]  # checked against KINDS above
        theta=theta,
        dim=dim,
        head_dim=head_dim,
        max_position_embeddings=longest,
        pairing=pairing,  # type: ignore[arg-type]
        rotated_fraction=fraction,
        original_max_position_embeddings=_find_original_length(context, kind, given, longest),
        **facts,
    )
    _check_factor_lists(context, rope)
    return rope


def _read_factors(context: Context, name: str, values: Any) -> tuple[float, ...]:
    if not isinstance(values, list | tuple):
        raise ConfigError(context.where, f"{name} is {values!r}", expected="a list of numbers")
    return tuple(check_number(value, context.where, f"an entry of {name}") for value in values)


def _find_original_length(
    context: Context, kind: str, given: dict[str, Any], longest: int
) -> int | None:
    """The trained length: a top-level key wins over rope_parameters, as in transformers 5."""
    top = context.config.get("original_max_position_embeddings", None)
    if kind == "dynamic":
        return longest
    if kind not in _HAS_ORIGINAL_LENGTH:
        return None
    length: int = _first(top, given.get("original_max_position_embeddings"), longest)
    return length


def _check_factor_lists(context: Context, rope: Rope) -> None:
    for name in ("short_factor", "long_factor"):
        values = getattr(rope, name)
        if values is not None and len(values) != rope.dim // 2:
            raise ConfigError(
                context.config.where,
                f"{name} has {len(values)} entries",
                expected=f"{rope.dim // 2}, one for each rotated pair",
            )
