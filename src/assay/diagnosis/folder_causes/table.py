"""The causes that lie in a folder's files: what shows, and what to change."""

from __future__ import annotations

from assay.diagnosis.finding import Cause

__all__ = ["FOLDER_CAUSES", "make_cause"]

# id -> (symptom, fix)
FOLDER_CAUSES: dict[str, tuple[str, str]] = {
    "graph_missing": ("there is no graph", "copy model.onnx into the folder, or export again"),
    "graph_unreadable": (
        "the graph's file is no ONNX model",
        "the file is truncated or damaged: export again",
    ),
    "duplicate_node": (
        "two nodes have one name, which some tools take for one node",
        "give each node a name of its own",
    ),
    "duplicate_value": (
        "two nodes write one value: the runtime refuses the graph or reads the wrong one",
        "give each output a name of its own",
    ),
    "dangling_input": (
        "a node reads a value that nothing gives",
        "connect the input to the node that computes it, or add the initializer",
    ),
    "node_order": (
        "a node stands before the one whose output it reads",
        "sort the nodes topologically",
    ),
    "opset_missing": (
        "a node's operator belongs to a domain that the model doesn't import",
        "add the domain and its version to opset_import",
    ),
    "shape_error": ("types or shapes of a node's inputs don't fit", "correct the node's inputs"),
    "data_missing": (
        "a file of weights isn't there",
        "copy the external data beside the graph, under the name that the graph has",
    ),
    "data_outside": (
        "weights are said to lie outside of the folder",
        "store external data in the folder itself",
    ),
    "data_truncated": (
        "a weight reaches beyond the end of its file",
        "the file is truncated: copy or export it again",
    ),
    "data_size": (
        "a weight's stretch of the file has another size than its type and shape need",
        "write offset and length as the tensor's type and shape say",
    ),
    "data_overlap": (
        "two weights share bytes of the file",
        "write each weight into a stretch of its own",
    ),
    "config_unreadable": ("genai_config.json is no JSON object", "write it again"),
    "config_filename": (
        "genai_config.json names a graph that isn't there",
        "name the graph's own file",
    ),
    "config_type": (
        "the runtime takes the model for another kind",
        "write the runtime's name of this model type",
    ),
    "config_sizes": (
        "the runtime makes caches of another size than the graph reads",
        "write the number that the checkpoint's config.json has",
    ),
    "config_vocabulary": (
        "the runtime reads logits of another width",
        "write the checkpoint's vocab_size",
    ),
    "config_names": (
        "genai_config.json names an input or output that the graph hasn't",
        "write the graph's own names",
    ),
    "config_window": (
        "the runtime keeps another window than the model has",
        "write the checkpoint's sliding_window",
    ),
    "eos_incomplete": (
        "generation doesn't stop where the model ends its answer",
        "list every eos_token_id of config.json and generation_config.json",
    ),
    "bos_wrong": ("prompts begin with another token", "write the checkpoint's bos_token_id"),
    "tokenizer_missing": ("the folder can't read text", "copy the checkpoint's tokenizer files"),
    "tokenizer_unreadable": ("tokenizer.json can't be read", "copy the checkpoint's file again"),
    "tokenizer_vocabulary": (
        "words have other ids than the model was trained with",
        "copy the checkpoint's tokenizer.json",
    ),
    "tokenizer_rules": (
        "text is split otherwise than the model was trained with",
        "copy the checkpoint's tokenizer.json: normalizer, pre-tokenizer, merges, added tokens",
    ),
    "template_missing": (
        "chats are sent without the model's own markers",
        "copy the checkpoint's chat template",
    ),
    "template_unreadable": ("the chat template is no valid Jinja", "copy the checkpoint's"),
    "template_differs": (
        "chats are written otherwise than the model was trained with",
        "copy the checkpoint's chat template",
    ),
}


def make_cause(name: str, place: str, evidence: str) -> Cause:
    """A cause of the table."""
    return Cause(
        id=name, place=place, confidence=1.0, evidence=evidence, fix=FOLDER_CAUSES[name][1]
    )
