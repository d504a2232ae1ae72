"""What goes wrong with positions: rope's base, its scaling, its tables; learned positions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from assay.diagnosis.causes.sites import find_rotaries, list_tables, place_attention
from assay.diagnosis.hypothesis import Change, Hypothesis, Variant, rolled, together, values

if TYPE_CHECKING:
    import torch

__all__ = [
    "CAUSES",
    "change_theta",
    "inverse_frequencies",
    "make_table",
    "own_theta",
    "read_parameters",
    "replace_table",
]

_LIKELY_THETA = (10000.0, 500000.0, 1000000.0)


def inverse_frequencies(theta: float, like: torch.Tensor) -> torch.Tensor:
    import torch

    pairs = like.shape[-1]
    exponent = torch.arange(0, 2 * pairs, 2, dtype=torch.int64).float() / (2 * pairs)
    return (1.0 / theta**exponent).to(like)


def _find_theta(config: Any) -> float:
    text = config.get_text_config()
    for source in (getattr(text, "rope_parameters", None), getattr(text, "rope_scaling", None)):
        if isinstance(source, dict):
            nested = [v for v in source.values() if isinstance(v, dict)] or [source]
            for entry in nested:
                if isinstance(entry.get("rope_theta"), (int, float)):
                    return float(entry["rope_theta"])
    return float(getattr(text, "rope_theta", None) or 10000.0)


def _theta(model: torch.nn.Module) -> Iterator[Variant]:
    tables = [
        (name, module, table)
        for name, module in find_rotaries(model)
        for table in list_tables(module)
    ]
    for name, module, table in tables:
        place = name if table == "inv_freq" else f"{name} ({table.removesuffix('_inv_freq')})"
        own = own_theta(module._buffers[table], model.config)
        near = [shift(own) for _, shift in _NEAR]
        for theta in dict.fromkeys((*_LIKELY_THETA, *near)):
            if theta != own:
                yield _turn(model, place, f"theta {theta:g}", change_theta(module, table, theta))
    for what, shift in _NEAR if len(tables) > 1 else ():
        changes = [_shift(m, t, model.config, shift) for _, m, t in tables]
        shared = ", ".join(dict.fromkeys(name for name, _, _ in tables))
        yield _turn(model, shared, f"every theta {what}", together(changes))


def change_theta(module: Any, table: str, theta: float) -> Change:
    """Another base for a table, scaled as the table is."""
    kind = table.removesuffix("inv_freq").removesuffix("_")
    own = read_parameters(module, kind)
    current = module._buffers[table]
    plain = inverse_frequencies(own_theta(current, module.config), current)
    if _differs(current, plain):
        made = make_table(module, kind, {**own, "rope_theta": theta})
        if made is not None:
            return replace_table(module, table, *made)
    return replace_table(module, table, inverse_frequencies(theta, current), None)


def _shift(module: Any, table: str, config: Any, shift: Callable[[float], float]) -> Change:
    return change_theta(module, table, shift(own_theta(module._buffers[table], config)))


def _turn(model: torch.nn.Module, rotary: str, what: str, change: Change) -> Variant:
    """A variant of a table that all layers share: one layer alone is its attention's fault."""
    return Variant(place_attention(model), what, change, shared=rotary)


_NEAR: tuple[tuple[str, Callable[[float], float]], ...] = (
    ("plus 1", lambda theta: theta + 1),
    ("minus 1", lambda theta: theta - 1),
    ("times 1.0001", lambda theta: theta * 1.0001),
    ("by 1.0001", lambda theta: theta / 1.0001),
)


def own_theta(table: torch.Tensor, config: Any) -> float:
    """The base that an unscaled table was made with; the config's for a scaled one."""
    pairs = table.shape[-1]
    if pairs > 1:
        theta = float(table[1].double()) ** -pairs
        nearest = float(round(theta))
        for value in (nearest, theta):
            if value > 1 and not _differs(table, inverse_frequencies(value, table)):
                return value
    return _find_theta(config)


def _differs(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool(((a - b).abs() > 1e-7 * a.abs()).any())


def _scaling(model: torch.nn.Module) -> Iterator[Variant]:
    own = _find_theta(model.config)
    for name, module in find_rotaries(model):
        for table in list_tables(module):
            current = module._buffers[table]
            if not _differs(current, inverse_frequencies(own, current)):
                continue
            change = replace_table(module, table, inverse_frequencies(own, current), 1.0)
            yield _turn(model, name, "rope scaling ignored", change)


def _facets(model: torch.nn.Module) -> Iterator[Variant]:
    """One entry of rope_parameters not honoured, the others as they are."""
    for name, module in find_rotaries(model):
        for table in list_tables(module):
            kind = table.removesuffix("inv_freq").removesuffix("_")
            own = read_parameters(module, kind)
            for key, changed in _change_entries(own):
                made = make_table(module, kind, {**own, **changed})
                if made is None:
                    continue
                frequencies, factor = made
                change = replace_table(module, table, frequencies, factor)
                yield _turn(model, name, f"{key} of rope_parameters not honoured", change)


def read_parameters(module: Any, kind: str) -> dict[str, Any]:
    """The rope parameters of a rotary module's table; of a layer kind where there are several."""
    config = getattr(module, "config", None)
    found = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    nested = found.get(kind) if isinstance(found, dict) else None
    found = nested if isinstance(nested, dict) else found
    theta = {"rope_theta": getattr(config, "rope_theta", None)}
    return {**({} if theta["rope_theta"] is None else theta), **dict(found)}


def _change_entries(own: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    neutral: dict[str, Any] = {
        "factor": 1.0,
        "attention_factor": None,
        "mscale": None,
        "mscale_all_dim": None,
        "beta_fast": None,
        "beta_slow": None,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    }
    yield from ((key, {key: value}) for key, value in neutral.items() if key in own)
    if own.get("rope_type", own.get("type")) == "yarn":
        yield "truncate", {"truncate": not own.get("truncate", True)}
    if "short_factor" in own:
        yield "short_factor", {"short_factor": own.get("long_factor")}
        yield "long_factor", {"long_factor": own["short_factor"]}
    if "original_max_position_embeddings" in own:
        doubled = 2 * int(own["original_max_position_embeddings"])
        yield "original_max_position_embeddings", {"original_max_position_embeddings": doubled}


def make_table(module: Any, kind: str, parameters: dict[str, Any]) -> tuple[Any, float] | None:
    """Frequencies and factor as transformers computes them; None where it can't."""
    import copy

    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rope_type = parameters.get("rope_type", parameters.get("type"))
    if rope_type not in ROPE_INIT_FUNCTIONS:
        return None
    config = copy.deepcopy(module.config)
    given = {key: value for key, value in parameters.items() if value is not None}
    for name in ("rope_parameters", "rope_scaling"):
        holder = vars(config).get(name)
        if isinstance(holder, dict):
            changed = {**holder, kind: given} if isinstance(holder.get(kind), dict) else given
            setattr(config, name, changed)
    extra = {"layer_type": kind} if kind else {}
    try:
        frequencies, factor = ROPE_INIT_FUNCTIONS[rope_type](config, "cpu", **extra)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError):
        return None
    return frequencies, float(factor)


def replace_table(module: Any, table: str, frequencies: Any, factor: float | None) -> Change:
    """Give a rotary module other frequencies for a while, and another factor unless None.

    With a factor the table is taken for one that doesn't change with the length.
    """

    @contextlib.contextmanager
    def change() -> Iterator[None]:
        prefix = table.removesuffix("inv_freq")
        names = [n for n in (f"{prefix}attention_scaling", "rope_type") if hasattr(module, n)]
        saved = {name: getattr(module, name) for name in names}
        before = module._buffers[table]
        try:
            module._buffers[table] = frequencies.to(before)
            if factor is not None:
                for name in names:
                    if isinstance(saved[name], float):
                        setattr(module, name, factor)
                    elif isinstance(saved[name], str):
                        setattr(module, name, "default")
            yield
        finally:
            module._buffers[table] = before
            for name, value in saved.items():
                setattr(module, name, value)

    return change


def _other_table(model: torch.nn.Module) -> Iterator[Variant]:
    """Layers of one kind turn by the table of another kind."""
    for name, module in find_rotaries(model):
        tables = list_tables(module)
        for table in tables:
            for other in tables:
                frequencies = module._buffers[other]
                if other == table or frequencies.shape != module._buffers[table].shape:
                    continue
                factor = getattr(module, f"{other.removesuffix('inv_freq')}attention_scaling", None)
                what = f"{other} for {table}"
                change = replace_table(module, table, frequencies, factor)
                yield _turn(model, name, what, change)


def _learned(model: torch.nn.Module) -> Iterator[Variant]:
    """Learned positions counted from another start."""
    import torch

    table = model.get_input_embeddings()  # type: ignore[operator]
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Embedding) and module is not table:
            for step in (1, -1, 2, -2):
                change = values([(module.weight, rolled(step))])
                yield Variant(name, f"positions off by {-step}", change)


CAUSES = (
    Hypothesis(
        "rope_table",
        "wrong in layers of one kind",
        "give each kind of layer its own frequencies",
        _other_table,
    ),
    Hypothesis(
        "rope_theta",
        "an error that grows with the position",
        "take rope_theta from the config (of the layer's own type)",
        _theta,
    ),
    Hypothesis(
        "rope_scaling_ignored",
        "an error that grows with the position",
        "apply rope_scaling: frequencies, and the factor on cos and sin",
        _scaling,
    ),
    Hypothesis(
        "rope_scaling",
        "an error that grows with the position",
        "honour every entry of rope_parameters",
        _facets,
    ),
    Hypothesis(
        "position_offset",
        "every position is wrong from the embedding on",
        "count learned positions from the model's own start",
        _learned,
    ),
)
