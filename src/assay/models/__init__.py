"""One folder per Hugging Face model_type; importing this package registers every spec."""

from assay.spec.loading import load_specs

load_specs(__name__, __path__)
