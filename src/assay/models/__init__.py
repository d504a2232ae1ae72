"""One folder per Hugging Face model_type; importing this package registers every spec.

A specs.py that can't be imported is broken, which is another thing than not supported: it is
warned of here, and asking for its type raises BrokenSpecError with the reason. The others work.
"""

import importlib
import pkgutil
import warnings

from assay.spec.registry import mark_broken

for _module in pkgutil.iter_modules(__path__):
    try:
        importlib.import_module(f"{__name__}.{_module.name}.specs")
    except Exception as reason:  # noqa: BLE001  (whatever is wrong with a file is that file's)
        mark_broken(_module.name, reason)
        warnings.warn(
            f"assay: models/{_module.name}/specs.py is broken: {type(reason).__name__}: {reason}",
            stacklevel=2,
        )
