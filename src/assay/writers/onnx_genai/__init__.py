"""ONNX Runtime GenAI folders: graph, external data, configuration, tokenizer, manifest."""

from assay.writers.onnx_genai.genai_config import build_genai_config
from assay.writers.onnx_genai.writer import GenaiFolder, estimate_size_bytes, write_genai_folder

__all__ = ["GenaiFolder", "build_genai_config", "estimate_size_bytes", "write_genai_folder"]
