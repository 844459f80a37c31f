"""A pytest plugin that puts ``anyjax.tensorflow`` in the place of the installed tf2jax, whose own
tests then run against it.
"""

import importlib.util
import sys
import types
from pathlib import Path

import anyjax.tensorflow

FOLDER = Path(next(iter(importlib.util.find_spec("tf2jax").submodule_search_locations or ())))


def _package(name: str, folder: Path, **names: object) -> types.ModuleType:
    made = types.ModuleType(name)
    made.__path__ = [str(folder)]
    vars(made).update(names)
    sys.modules[name] = made
    return made


public = {name: getattr(anyjax.tensorflow, name) for name in anyjax.tensorflow.__all__}
_package("tf2jax", FOLDER, **public)
inside = _package("tf2jax._src", FOLDER / "_src")
for name in ("tf2jax", "ops"):
    setattr(inside, name, anyjax.tensorflow)
    sys.modules[f"tf2jax._src.{name}"] = anyjax.tensorflow
inside.config = sys.modules["tf2jax._src.config"] = anyjax.tensorflow.config
experimental = _package("tf2jax.experimental", FOLDER / "experimental")
mhlo = anyjax.tensorflow.experimental.mhlo
experimental.mhlo = sys.modules["tf2jax.experimental.mhlo"] = mhlo
