"""genai_config.json against the graph and the checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from assay.diagnosis.finding import Cause
from assay.diagnosis.folder_causes.table import make_cause
from assay.verification.folder import ModelFolder
from assay.verification.text import find_end_ids

__all__ = ["examine_config", "note_config"]

_FILE = "genai_config.json"
_SIZES = ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_size")
# Decoders that onnxruntime-genai 0.10 to 0.18 knows by name.
_TYPES = (
    *("chatglm", "decoder", "decoder-pipeline", "ernie4_5", "gemma", "gemma2", "gemma3"),
    *("gemma3_text", "gpt2", "gptoss", "granite", "internlm2", "llama", "mistral", "nemotron"),
    *("olmo", "phi", "phi3", "phi3small", "phimoe", "qwen2", "qwen3", "smollm3"),
)


def examine_config(folder: ModelFolder, model: Any) -> Iterator[Cause]:
    """What the runtime is told that isn't so. model: the reference; only its configs are read."""
    section = folder.config.get("model")
    if not isinstance(section, dict):
        return
    decoder = section.get("decoder") or {}
    text = model.config.get_text_config()
    yield from _examine_type(section, model.config)
    yield from _examine_tokens(section, model, text)
    vocabulary = section.get("vocab_size")
    if isinstance(vocabulary, int) and vocabulary != text.vocab_size:
        evidence = f"{vocabulary}, the checkpoint has {text.vocab_size}"
        yield make_cause("config_vocabulary", f"{_FILE}: model.vocab_size", evidence)
    yield from _examine_sizes(decoder, text)
    yield from _examine_names(folder, decoder)
    yield from _examine_window(decoder, text)


def note_config(folder: ModelFolder, model: Any) -> Iterator[str]:
    """What is odd, but may be meant."""
    told = (folder.config.get("model") or {}).get("context_length")
    own = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if isinstance(told, int) and isinstance(own, int) and told > own:
        yield f"{_FILE}: context_length {told} is more than the {own} that the model was made for"


def _examine_type(section: dict[str, Any], config: Any) -> Iterator[Cause]:
    """A name that belongs to no text decoder; decoders that run alike may share one."""
    told = section.get("type")
    names = {str(config.model_type), str(config.get_text_config().model_type), *_TYPES}
    if told not in names | {name.removesuffix("_text") for name in names}:
        evidence = f"{told!r} is no type of a text decoder; the checkpoint is {config.model_type!r}"
        yield make_cause("config_type", f"{_FILE}: model.type", evidence)


def _examine_tokens(section: dict[str, Any], model: Any, text: Any) -> Iterator[Cause]:
    wanted = find_end_ids(model)
    found = _as_set(section.get("eos_token_id"))
    if wanted - found:
        evidence = f"{sorted(found) or 'none'}, the checkpoint ends at {sorted(wanted)}"
        yield make_cause("eos_incomplete", f"{_FILE}: model.eos_token_id", evidence)
    bos, own = section.get("bos_token_id"), getattr(text, "bos_token_id", None)
    if isinstance(bos, int) and isinstance(own, int) and bos != own:
        evidence = f"{bos}, the checkpoint has {own}"
        yield make_cause("bos_wrong", f"{_FILE}: model.bos_token_id", evidence)


def _examine_sizes(decoder: dict[str, Any], text: Any) -> Iterator[Cause]:
    wanted = {name: getattr(text, name, None) for name in _SIZES}
    heads, hidden = wanted["num_attention_heads"], wanted["hidden_size"]
    wanted["num_key_value_heads"] = wanted["num_key_value_heads"] or heads
    head_dim = getattr(text, "head_dim", None)
    wanted["head_size"] = head_dim or (hidden // heads if heads and hidden else None)
    for name, own in wanted.items():
        told = decoder.get(name)
        if isinstance(told, int) and isinstance(own, int) and told != own:
            evidence = f"{told}, the checkpoint has {own}"
            yield make_cause("config_sizes", f"{_FILE}: model.decoder.{name}", evidence)


def _examine_names(folder: ModelFolder, decoder: dict[str, Any]) -> Iterator[Cause]:
    graph = folder.proto.graph
    for side, values in (("inputs", graph.input), ("outputs", graph.output)):
        there = {value.name for value in values}
        for key, name in (decoder.get(side) or {}).items():
            if not isinstance(name, str):
                continue
            layers = range(int(decoder.get("num_hidden_layers") or 0)) if "%d" in name else [0]
            missing = [n for i in layers if (n := name.replace("%d", str(i))) not in there]
            if missing and len(missing) == len(layers):
                evidence = f"{name!r}: the graph has no {missing[0]!r}"
                yield make_cause("config_names", f"{_FILE}: model.decoder.{side}.{key}", evidence)
    yield from _examine_caches(folder, decoder)


def _examine_caches(folder: ModelFolder, decoder: dict[str, Any]) -> Iterator[Cause]:
    """Keys called values: told by where attention reads them."""
    names = decoder.get("inputs") or {}
    keys, values = names.get("past_key_names"), names.get("past_value_names")
    nodes = [n for n in folder.proto.graph.node if n.op_type == "GroupQueryAttention"]
    if not nodes or not isinstance(keys, str) or not isinstance(values, str):
        return
    if nodes[0].input[3] == values.replace("%d", "0"):
        evidence = f"keys are said to be {keys!r}, which attention reads as values"
        yield make_cause("config_names", f"{_FILE}: model.decoder.inputs.past_key_names", evidence)


def _examine_window(decoder: dict[str, Any], text: Any) -> Iterator[Cause]:
    told = decoder.get("sliding_window")
    size = told.get("window_size") if isinstance(told, dict) else None
    own = getattr(text, "sliding_window", None)
    if isinstance(size, int) and size > 0 and isinstance(own, int) and size != own:
        evidence = f"{size}, the checkpoint has {own}"
        yield make_cause("config_window", f"{_FILE}: model.decoder.sliding_window", evidence)


def _as_set(value: Any) -> set[int]:
    if isinstance(value, (list, tuple)):
        return {int(v) for v in value}
    return {int(value)} if isinstance(value, int) else set()
