"""A SavedModel's folder or a Keras file, and how TensorFlow runs it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from anyjax.cli import _shown
from anyjax.cli._shown import timed
from anyjax.cli.sources import Contents, Opened, Peer, Request, drawn, listed, since_start
from anyjax.errors import Unsupported
from anyjax.typing import PyTree


def opened(request: Request) -> Opened:
    """Opens a model with an example of its call; sizes that are not known are those of rows."""
    request.report("importing TensorFlow and JAX")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    import anyjax
    from anyjax.tensorflow import savedmodel

    imports = since_start()
    request.report("loading")
    load, restored = timed(lambda: _load(request.source))  # it keeps the variables alive
    function = restored
    if hasattr(restored, "signatures"):
        function = savedmodel.choose(restored, request.signature)
    args, kwargs = _examples(savedmodel.call_of(function), request.rows)
    request.report("converting")
    convert, model = timed(lambda: anyjax.from_tensorflow(function, *args, **kwargs))
    arrays = [x for x in tf.nest.flatten((args, kwargs)) if isinstance(x, np.ndarray)]
    shown = ", ".join(f"{x.dtype}{list(x.shape)}" for x in arrays)
    return Opened(
        model=model, args=args, kwargs=kwargs, place=request.source,
        seconds={"imports": imports, "load": load, "convert": convert},
        note=f"inputs: {shown}, drawn at random",
        peer=Peer("TensorFlow", _runner(function, args, kwargs), _numbered),
    )  # fmt: skip


def contents(request: Request) -> Contents:
    """Shows signatures and variables."""
    with _shown.progress("importing TensorFlow"):
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        from anyjax.tensorflow import savedmodel

        restored = _load(request.source)
        functions = dict(getattr(restored, "signatures", None) or {}) or {"call": restored}
        calls = {name: _inputs(savedmodel.call_of(f)) for name, f in functions.items()}
    variables = _variables([restored, *functions.values()])
    kind = lambda x: getattr(x.dtype, "name", x.dtype)  # Keras gives a text
    rows = {k: {"dtype": kind(x), "shape": [*x.shape]} for k, x in variables.items()}
    cells = [(k, str(x["dtype"]), str(x["shape"])) for k, x in rows.items()]
    return Contents(
        {"from": request.source, "signatures": calls, "variables": rows},
        [
            f"TensorFlow model from {request.source}",
            *(f"signature {name}: {listed(x) or 'no inputs'}" for name, x in calls.items()),
            _shown.table(["variable", "dtype", "shape"], cells),
            f"{len(rows)} variables; anyjax run {request.source} compares it with JAX",
        ],
    )


def _load(source: str) -> Any:
    """Restores a model.

    Raises:
      BadCheckpoint: it cannot be read.
      Unsupported: it is a graph alone.
    """
    from anyjax.tensorflow import savedmodel

    path = Path(source).expanduser()
    if path.suffix in (".pb", ".pbtxt") and path.is_file():
        if path.stem != "saved_model":
            raise Unsupported(
                f"{path.name} is a graph without signatures",
                where=str(path.absolute()),
                why="it does not say what it is called with",
                do="call it from Python: anyjax.from_tensorflow(file)(*arrays)",
            )
        path = path.parent
    return savedmodel.load(path)


def _examples(
    specs: tuple[tuple, dict[str, PyTree]], rows: int
) -> tuple[tuple[PyTree, ...], dict[str, PyTree]]:
    """Draws arrays for the specs of a call."""
    import tensorflow as tf

    rng = np.random.default_rng(0)

    def example(spec: PyTree) -> PyTree:
        if not isinstance(spec, tf.TensorSpec):
            return spec
        shape = [rows if n is None else n for n in spec.shape]
        return drawn(rng, shape, np.dtype(spec.dtype.as_numpy_dtype))

    return tf.nest.map_structure(example, specs)


def _runner(function: Any, args: tuple, kwargs: dict[str, PyTree]) -> Callable[[], PyTree]:
    import tensorflow as tf

    run = function if hasattr(function, "structured_input_signature") else tf.function(function)
    tensors = tf.nest.map_structure(
        lambda x: tf.constant(x) if isinstance(x, np.ndarray) else x, (args, kwargs)
    )
    return lambda: [x.numpy() for x in tf.nest.flatten(run(*tensors[0], **tensors[1]))]


def _numbered(out: PyTree) -> dict[str, Any]:
    """Returns outputs by their numbers, which are the same on both sides."""
    import jax

    return {str(i): x for i, x in enumerate(jax.tree.leaves(out))}


def _inputs(specs: tuple[tuple, dict[str, PyTree]]) -> dict[str, str]:
    """Returns the specs of a call, by name or position."""
    import tensorflow as tf

    args, kwargs = specs
    inputs = {}
    for name, value in {**{str(i): x for i, x in enumerate(args)}, **kwargs}.items():
        flat = [x for x in tf.nest.flatten(value) if isinstance(x, tf.TensorSpec)]
        if flat:
            inputs[name] = ", ".join(f"{x.dtype.name}{_shape(x.shape)}" for x in flat)
    return inputs


def _shape(shape: Any) -> str:
    """Formats a shape, with ? for unknown sizes."""
    sizes = ["..."] if shape.rank is None else ["?" if n is None else str(n) for n in shape]
    return f"[{', '.join(sizes)}]"


def _variables(holders: list[Any]) -> dict[str, Any]:
    """Returns the variables of models and functions, each once and under a name of its own."""
    variables: dict[str, Any] = {}
    handles = set()
    for variable in [x for holder in holders for x in getattr(holder, "variables", ())]:
        inner = variable.value if hasattr(variable, "path") else variable  # Keras wraps them
        if id(inner.handle) in handles:
            continue
        handles.add(id(inner.handle))
        name = base = getattr(variable, "path", variable.name).partition(":")[0]
        count = 0
        while name in variables:
            count += 1
            name = f"{base}_{count}"
        variables[name] = variable
    return variables
