"""``anyjax inspect`` of a SavedModel's folder or a Keras file: its signatures and variables."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyjax.cli import _shown

if TYPE_CHECKING:
    from anyjax.model import Model


def is_tensorflow(source: str) -> bool:
    """Returns True if a path is a model of TensorFlow, by its name and files."""
    path = Path(source).expanduser()
    return path.suffix in (".keras", ".h5") or (path / "saved_model.pb").is_file()


def inspect(source: str, as_json: bool) -> None:
    """Runs ``anyjax inspect`` for TensorFlow."""
    with _shown.progress("importing TensorFlow"):
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        from anyjax.tensorflow import savedmodel

        model = savedmodel.load(source)
        calls = {name: _inputs(f) for name, f in _functions(model).items()}
        variables = {v.name: v for v in getattr(model, "variables", ())}
    rows = {k: {"dtype": str(v.dtype), "shape": [*v.shape]} for k, v in variables.items()}
    if as_json:
        _shown.as_json({"from": source, "signatures": calls, "variables": rows})
        return
    console = _shown.console()
    console.print(f"TensorFlow model from {source}", markup=False)
    for name, inputs in calls.items():
        specs = ", ".join(f"{k} {v}" for k, v in inputs.items())
        console.print(f"signature {name}: {specs or 'no inputs'}", markup=False)
    cells = [(k, str(x["dtype"]), str(x["shape"])) for k, x in rows.items()]
    console.print(_shown.table(["variable", "dtype", "shape"], cells))
    console.print(f"{len(rows)} variables; anyjax run {source} compares it with JAX", markup=False)


def _functions(model: Model) -> dict[str, Any]:
    """Returns the functions that can be called, by name."""
    signatures = dict(getattr(model, "signatures", None) or {})
    return signatures or {"call": model}


def _inputs(function: object) -> dict[str, str]:
    """Returns the specs of a call, by name or position."""
    import tensorflow as tf

    from anyjax.tensorflow import savedmodel

    args, kwargs = savedmodel.call_of(function)
    named = {**{str(i): x for i, x in enumerate(args)}, **kwargs}
    described = {}
    for name, value in named.items():
        specs = [x for x in tf.nest.flatten(value) if isinstance(x, tf.TensorSpec)]
        if specs:
            described[name] = ", ".join(f"{x.dtype.name}{_shape(x.shape)}" for x in specs)
    return described


def _shape(shape: Any) -> str:
    """Formats a shape, with ? for unknown sizes."""
    sizes = ["..."] if shape.rank is None else ["?" if n is None else str(n) for n in shape]
    return f"[{', '.join(sizes)}]"
