"""Spec and config in, decoder graph out; and the options of an export."""

from assay.graph.decoder import DecoderGraph, build_decoder_graph
from assay.graph.options import ExportOptions

__all__ = ["DecoderGraph", "ExportOptions", "build_decoder_graph"]
