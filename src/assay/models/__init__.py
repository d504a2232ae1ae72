"""One folder per Hugging Face model_type; importing this package registers every spec.

A specs.py that can't be imported is an error with its own traceback, never "not supported".
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}.specs")
