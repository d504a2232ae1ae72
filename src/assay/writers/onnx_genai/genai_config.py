"""genai_config.json: what ONNX Runtime GenAI needs to know about the folder."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from assay.blocks.cache import PAST_KEY, PAST_VALUE, PRESENT_KEY, PRESENT_VALUE
from assay.errors import ConfigError
from assay.spec.vocabulary import DecoderPlan

__all__ = ["MODEL_FILE", "build_genai_config", "find_eos_token_ids"]

MODEL_FILE = "model.onnx"
_PLAIN_INPUTS = ("input_ids", "attention_mask", "position_ids")
_SEARCH_KEYS: Mapping[str, type] = {
    "temperature": float,
    "top_k": int,
    "top_p": float,
    "repetition_penalty": float,
    "do_sample": bool,
}


def build_genai_config(
    plan: DecoderPlan,
    *,
    model_type: str,
    config: Mapping[str, Any],
    generation_config: Mapping[str, Any],
    context_length: int,
    share_buffer: bool,
    input_names: Collection[str],
) -> dict[str, Any]:
    """Return the file's content.

    model_type: the runtime's own name. context_length: the longest sequence, prompt and answer.
    share_buffer: whether past and present may be one buffer (GroupQueryAttention only).
    input_names: of the graph. Raises ConfigError for a token id or a search option of the wrong
    kind.
    """
    eos = find_eos_token_ids(config, generation_config)
    bos = _find_first_id("bos_token_id", config, generation_config)
    pad = _find_first_id("pad_token_id", config, generation_config)
    model: dict[str, Any] = {
        "type": model_type,
        "vocab_size": plan.vocab_size,
        "context_length": context_length,
        "bos_token_id": bos if bos is not None else (eos[0] if eos else 0),
        "eos_token_id": eos,
        "pad_token_id": pad if pad is not None else (eos[0] if eos else 0),
        "decoder": _describe_decoder(plan, input_names),
    }
    search: dict[str, Any] = {
        "max_length": context_length,
        "min_length": 0,
        "num_beams": 1,
        "past_present_share_buffer": share_buffer,
        "do_sample": False,
    }
    for key, kind in _SEARCH_KEYS.items():
        if generation_config.get(key) is not None:
            search[key] = _check_kind(key, generation_config[key], kind)
    return {"model": model, "search": search}


def find_eos_token_ids(
    config: Mapping[str, Any], generation_config: Mapping[str, Any]
) -> list[int]:
    """Return every id that ends a text, generation_config's first."""
    ids = [
        token
        for source in (generation_config, config)
        for token in _read_token_ids("eos_token_id", source)
    ]
    return list(dict.fromkeys(ids))


def _find_first_id(
    key: str, config: Mapping[str, Any], generation_config: Mapping[str, Any]
) -> int | None:
    ids = [*_read_token_ids(key, generation_config), *_read_token_ids(key, config)]
    return ids[0] if ids else None


def _read_token_ids(key: str, source: Mapping[str, Any]) -> list[int]:
    """Return a key's ids, given as one or as a list; a negative one means that there is none."""
    given = source.get(key)
    if given is None:
        return []
    ids = [
        _check_kind(key, token, int) for token in (given if isinstance(given, list) else [given])
    ]
    return [token for token in ids if token >= 0]


def _check_kind(key: str, value: Any, kind: type) -> Any:
    """Return a value of config.json or generation_config.json that has the kind."""
    accepted = (int, float) if kind is float else kind
    if isinstance(value, accepted) and isinstance(value, bool) == (kind is bool):
        return value
    what = {int: "an integer", float: "a number", bool: "true or false"}[kind]
    raise ConfigError(
        "config.json or generation_config.json",
        f"{key} is {value!r}",
        expected=what,
        next_step="Take both files from the model's repository.",
    )


def _describe_decoder(plan: DecoderPlan, input_names: Collection[str]) -> dict[str, Any]:
    attentions = plan.attentions
    first = attentions[0]
    shapes = {(attention.num_kv_heads, attention.head_dim) for attention in attentions}
    assert len(shapes) == 1, "genai_config.json has one cache shape for all layers"
    return {
        "filename": MODEL_FILE,
        "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
        "hidden_size": plan.hidden_size,
        "num_hidden_layers": len(attentions),
        "num_attention_heads": first.num_heads,
        "num_key_value_heads": first.num_kv_heads,
        "head_size": first.head_dim,
        "inputs": {
            **{name: name for name in _PLAIN_INPUTS if name in input_names},
            "past_key_names": PAST_KEY,
            "past_value_names": PAST_VALUE,
        },
        "outputs": {
            "logits": "logits",
            "present_key_names": PRESENT_KEY,
            "present_value_names": PRESENT_VALUE,
        },
    }
