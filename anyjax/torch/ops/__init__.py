"""The lowerings, one file per family; importing this package fills the table."""

import importlib
import pkgutil

from anyjax.torch.core.schema import table

with table.deferred():
    for _file in pkgutil.iter_modules(__path__):
        if not _file.name.startswith("_"):
            importlib.import_module(f"{__name__}.{_file.name}")
